package auth

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"connectrpc.com/grpchealth"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/wrapperspb"
)

const (
	unaryProcedure  = "/test.v1.Who/Ask"
	streamProcedure = "/test.v1.Who/Watch"
	adminProcedure  = "/test.v1.Admin/Ask"
)

type fixture struct {
	url      string
	registry *prometheus.Registry
	keys     *Keys
	logged   *strings.Builder
}

// serve starts a server with one unary and one streaming procedure that answer
// who calls, one that needs an admin, and a health service.
func serve(t *testing.T, db *sql.DB, config Config, clock func() time.Time) fixture {
	t.Helper()
	f := fixture{registry: prometheus.NewRegistry(), logged: &strings.Builder{}}
	if db != nil {
		f.keys = openKeys(t, db, KeysConfig{Registerer: f.registry, Clock: clock})
	}
	config.Keys, config.Registerer = f.keys, f.registry
	config.Exempt, config.AdminOnly = []string{"/grpc.health.v1.Health/"}, []string{"/test.v1.Admin/"}
	authenticator, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	intercept := connect.WithInterceptors(authenticator.Interceptor())
	ask := func(ctx context.Context, _ *connect.Request[emptypb.Empty]) (*connect.Response[wrapperspb.StringValue], error) {
		return connect.NewResponse(wrapperspb.String(who(ctx))), nil
	}
	watch := func(ctx context.Context, _ *connect.Request[emptypb.Empty], stream *connect.ServerStream[wrapperspb.StringValue]) error {
		return stream.Send(wrapperspb.String(who(ctx)))
	}
	mux := http.NewServeMux()
	mux.Handle(unaryProcedure, connect.NewUnaryHandler(unaryProcedure, ask, intercept))
	mux.Handle(adminProcedure, connect.NewUnaryHandler(adminProcedure, ask, intercept))
	mux.Handle(streamProcedure, connect.NewServerStreamHandler(streamProcedure, watch, intercept))
	mux.Handle(grpchealth.NewHandler(grpchealth.NewStaticChecker("test.v1.Who"), intercept))
	server := httptest.NewUnstartedServer(mux)
	server.Config.ErrorLog = log.New(f.logged, "", 0)
	server.Start()
	t.Cleanup(server.Close)
	f.url = server.URL
	return f
}

func who(ctx context.Context) string {
	p, ok := FromContext(ctx)
	return fmt.Sprintf("%s %s %v %v", p.KeyID, p.Role, p.Accounts, ok)
}

// call calls a procedure with Authorization headers and returns the answer.
func (f fixture) call(procedure string, authorization ...string) (string, error) {
	client := connect.NewClient[emptypb.Empty, wrapperspb.StringValue](http.DefaultClient, f.url+procedure)
	request := connect.NewRequest(&emptypb.Empty{})
	request.Header()["Authorization"] = authorization
	if procedure != streamProcedure {
		response, err := client.CallUnary(context.Background(), request)
		if err != nil {
			return "", err
		}
		return response.Msg.GetValue(), nil
	}
	stream, err := client.CallServerStream(context.Background(), request)
	if err != nil {
		return "", err
	}
	defer stream.Close()
	if !stream.Receive() {
		return "", stream.Err()
	}
	return stream.Msg().GetValue(), nil
}

func TestInterceptor(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *sql.DB) {
		now := newClock()
		f := serve(t, open(), Config{}, now.Now)
		key, secret := createKey(t, f.keys, NewKey{Accounts: []string{"acme", "beta"}})
		admin, adminSecret := createKey(t, f.keys, NewKey{Role: RoleAdmin})
		_, expired := createKey(t, f.keys, NewKey{ExpiresAt: now.Now().Add(time.Second)})
		gone, revoked := createKey(t, f.keys, NewKey{})
		if _, err := f.keys.Revoke(t.Context(), gone.ID, "test"); err != nil {
			t.Fatal(err)
		}
		now.Advance(time.Second)
		_, unknown := newKey()
		caller := fmt.Sprintf("%s caller [acme beta] true", key.ID)
		for _, c := range []struct {
			name          string
			authorization []string
			want          string // the answer, or a part of the error
			code          connect.Code
		}{
			{"a key", []string{"Bearer " + secret.Reveal()}, caller, 0},
			{"scheme in another case, more spaces", []string{"bEARER   " + secret.Reveal() + " "}, caller, 0},
			{"an admin's key", []string{"Bearer " + adminSecret.Reveal()}, admin.ID + " admin [*] true", 0},
			{"no header", nil, `no API key; send the header "Authorization: Bearer bk_..."`, connect.CodeUnauthenticated},
			{"an empty header", []string{""}, "no API key", connect.CodeUnauthenticated},
			{"no key in it", []string{"Bearer "}, "no API key", connect.CodeUnauthenticated},
			{"another scheme", []string{"Basic " + secret.Reveal()}, "no API key", connect.CodeUnauthenticated},
			{"the bare key", []string{secret.Reveal()}, "no API key", connect.CodeUnauthenticated},
			{"malformed", []string{"Bearer nonsense"}, "the API key is not valid", connect.CodeUnauthenticated},
			{"unknown", []string{"Bearer " + unknown.Reveal()}, "the API key is not valid", connect.CodeUnauthenticated},
			{"huge", []string{"Bearer " + strings.Repeat("a", 10_000)}, "the API key is not valid", connect.CodeUnauthenticated},
			{"two headers", []string{"Bearer " + secret.Reveal(), "Bearer " + secret.Reveal()}, "the API key is not valid", connect.CodeUnauthenticated},
			{"two keys", []string{"Bearer " + secret.Reveal() + ", Bearer " + secret.Reveal()}, "the API key is not valid", connect.CodeUnauthenticated},
			{"revoked", []string{"Bearer " + revoked.Reveal()}, "the API key was revoked", connect.CodeUnauthenticated},
			{"expired", []string{"Bearer " + expired.Reveal()}, "the API key has expired", connect.CodeUnauthenticated},
			{"the demo key without the demo", []string{"Bearer demo"}, "the API key is not valid", connect.CodeUnauthenticated},
		} {
			for _, procedure := range []string{unaryProcedure, streamProcedure} {
				answer, err := f.call(procedure, c.authorization...)
				if c.code == 0 {
					if err != nil || answer != c.want {
						t.Errorf("%s %s: %q, %v, want %q", procedure, c.name, answer, err, c.want)
					}
					continue
				}
				refused := new(connect.Error)
				if !errors.As(err, &refused) || refused.Code() != c.code || !strings.Contains(refused.Message(), c.want) {
					t.Errorf("%s %s: %q, %v, want %v with %q", procedure, c.name, answer, err, c.code, c.want)
					continue
				}
				if refused.Meta().Get("WWW-Authenticate") != "Bearer" && procedure == unaryProcedure {
					t.Errorf("%s: no WWW-Authenticate", c.name)
				}
				for _, key := range []Secret{secret, revoked, expired, unknown} {
					assertHides(t, fmt.Sprintf("%v %+v %v", err, refused, refused.Meta()), key)
				}
			}
		}
		if answer, err := f.call(adminProcedure, "Bearer "+adminSecret.Reveal()); err != nil {
			t.Errorf("an admin's call: %q, %v", answer, err)
		}
		if answer, err := f.call(adminProcedure, "Bearer "+secret.Reveal()); connect.CodeOf(err) != connect.CodePermissionDenied {
			t.Errorf("an admin's call with a caller's key: %q, %v, want permission_denied", answer, err)
		}
		if answer, err := f.call(adminProcedure); connect.CodeOf(err) != connect.CodeUnauthenticated {
			t.Errorf("an admin's call without a key: %q, %v, want unauthenticated", answer, err)
		}
		if f.logged.Len() > 0 {
			t.Errorf("the server logged %s", f.logged)
		}
		for result, want := range map[string]float64{
			"ok": 7, "exempt": 0, "missing": 11, "invalid": 12, "revoked": 2, "expired": 2, "forbidden": 1, "unavailable": 0, "cancelled": 0,
		} {
			if got := counted(t, f.registry, "budgetd_auth_calls_total", result); got != want {
				t.Errorf("%s = %v, want %v", result, got, want)
			}
		}
	})
}

// Malformed and unknown keys get the same answer to the byte.
func TestStrangersLookAlike(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *sql.DB) {
		f := serve(t, open(), Config{}, nil)
		_, unknown := newKey()
		var answers []string
		for _, key := range []string{unknown.Reveal(), "malformed", unknown.Reveal()[1:], DemoKey} {
			request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.url+unaryProcedure, strings.NewReader("{}"))
			if err != nil {
				t.Fatal(err)
			}
			request.Header.Set("Authorization", "Bearer "+key)
			request.Header.Set("Content-Type", "application/json")
			response, err := http.DefaultClient.Do(request)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(response.Body)
			response.Body.Close()
			if err != nil {
				t.Fatal(err)
			}
			response.Header.Del("Date")
			answers = append(answers, fmt.Sprint(response.StatusCode, response.Header, string(body)))
		}
		if alike := slices.Compact(slices.Clone(answers)); len(alike) != 1 || !strings.HasPrefix(alike[0], "401 ") {
			t.Errorf("the answers differ: %q", alike)
		}
	})
}

func TestExempt(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *sql.DB) {
		db := open()
		f := serve(t, db, Config{}, nil)
		db.Close() // health answers whatever the store does
		response, err := http.Post(f.url+"/grpc.health.v1.Health/Check", "application/json", strings.NewReader(`{"service":"test.v1.Who"}`))
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		if body, err := io.ReadAll(response.Body); err != nil || !strings.Contains(string(body), "SERVING") {
			t.Errorf("health: %d %s %v", response.StatusCode, body, err)
		}
		// A good key that can't be checked is not called bad.
		_, unknown := newKey()
		if _, err := f.call(unaryProcedure, "Bearer "+unknown.Reveal()); connect.CodeOf(err) != connect.CodeUnavailable || strings.Contains(err.Error(), "sql") {
			t.Errorf("with the store away: %v, want unavailable without its insides", err)
		}
	})
}

func TestDemo(t *testing.T) {
	f := serve(t, nil, Config{Demo: true}, nil)
	if answer, err := f.call(unaryProcedure, "Bearer demo"); err != nil || answer != "demo caller [demo] true" {
		t.Errorf("%q, %v", answer, err)
	}
	_, unknown := newKey()
	for _, key := range []string{"Demo", "demo2", "dem", unknown.Reveal()} {
		if _, err := f.call(unaryProcedure, "Bearer "+key); connect.CodeOf(err) != connect.CodeUnauthenticated {
			t.Errorf("%s: %v, want unauthenticated", key, err)
		}
	}
	if _, err := f.call(adminProcedure, "Bearer demo"); connect.CodeOf(err) != connect.CodePermissionDenied {
		t.Errorf("an admin's call: %v, want permission_denied", err)
	}
	authenticator, err := New(Config{Demo: true})
	if err != nil {
		t.Fatal(err)
	}
	header := http.Header{"Authorization": {"Bearer demo"}}
	for peer, want := range map[string]error{
		"127.0.0.1:5": nil, "127.9.9.9:5": nil, "[::1]:5": nil, "::1": nil, "[::ffff:127.0.0.1]:80": nil,
		"10.0.0.1:5": ErrInvalidKey, "[2001:db8::1]:5": ErrInvalidKey, "0.0.0.0:5": ErrInvalidKey, "": ErrInvalidKey,
		"localhost:5": ErrInvalidKey, "127.0.0.1.example.com:5": ErrInvalidKey, "@": ErrInvalidKey,
	} {
		if p, err := authenticator.Authenticate(t.Context(), header, peer); err != want {
			t.Errorf("from %q: %+v, %v, want %v", peer, p, err, want)
		}
	}
}

func TestNewRefuses(t *testing.T) {
	for want, config := range map[string]Config{
		"Keys: none": {},
		`"/" is neither a service (/package.Service/) nor`:        {Demo: true, Exempt: []string{"/"}},
		`Exempt: "" is neither`:                                   {Demo: true, Exempt: []string{""}},
		`Exempt: "//" is neither`:                                 {Demo: true, Exempt: []string{"//"}},
		`AdminOnly: "test.v1.Who" is neither a service`:           {Demo: true, AdminOnly: []string{"test.v1.Who"}},
		`AdminOnly: "/test.v1.Who" is neither a service`:          {Demo: true, AdminOnly: []string{"/test.v1.Who"}},
		`Exempt: "/test.v1.Who/Ask/" is neither a service (/pack`: {Demo: true, Exempt: []string{"/test.v1.Who/Ask/"}},
	} {
		if _, err := New(config); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", config, err, want)
		}
	}
}

func TestCovers(t *testing.T) {
	paths := []string{"/a.B/", "/c.D/Check"}
	for procedure, want := range map[string]bool{
		"/a.B/Any": true, "/c.D/Check": true, "/c.D/Checks": false, "/c.D/Other": false, "/a.Bad/Any": false, "": false, "/a.B": false,
	} {
		if got := covers(paths, procedure); got != want {
			t.Errorf("covers(%q) = %v", procedure, got)
		}
	}
}

func TestMayUse(t *testing.T) {
	some := Principal{Role: RoleCaller, Accounts: []string{"A", "acme", "b"}}
	all := Principal{Role: RoleAdmin, Accounts: []string{EveryAccount}}
	for account, want := range map[string][2]bool{
		"acme": {true, true}, "A": {true, true}, "b": {true, true}, "a": {false, true}, "acm": {false, true},
		"acme2": {false, true}, "*": {false, true}, "": {false, false},
	} {
		if got := [2]bool{some.MayUse(account), all.MayUse(account)}; got != want {
			t.Errorf("MayUse(%q) = %v, want %v", account, got, want)
		}
	}
	var nobody Principal
	if nobody.MayUse("acme") || nobody.MayUse("") || nobody.MayUse("*") || nobody.IsAdmin() {
		t.Error("the zero principal may do something")
	}
	if _, ok := FromContext(context.Background()); ok {
		t.Error("a bare context has a principal")
	}
}

func TestMetricsLint(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *sql.DB) {
		registry := prometheus.NewRegistry()
		db := open()
		keys := openKeys(t, db, KeysConfig{Registerer: registry})
		if _, err := New(Config{Keys: keys, Registerer: registry}); err != nil {
			t.Fatal(err)
		}
		openSigning(t, db, SigningConfig{Registerer: registry})
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		problems, err := promlint.NewWithMetricFamilies(families).Lint()
		if err != nil || len(problems) > 0 {
			t.Errorf("promlint: %v, %v", problems, err)
		}
		var names []string
		for _, family := range families {
			names = append(names, family.GetName())
		}
		want := []string{
			"budgetd_auth_calls_total", "budgetd_auth_key_lookups_total", "budgetd_auth_keys_remembered",
			"budgetd_auth_signing_keys", "budgetd_auth_signing_refreshes_total", "budgetd_auth_store_lookup_seconds",
		}
		if !slices.Equal(names, want) {
			t.Errorf("metrics = %v, want %v", names, want)
		}
	})
}
