package app_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"connectrpc.com/grpcreflect"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/app"
	"github.com/budgetd/budgetd/cmd/budgetd/internal/ratelimit"
	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
	"github.com/budgetd/budgetd/proto/budget/v1/budgetv1connect"
	"github.com/budgetd/budgetd/test/broker"
)

func get(t testing.TB, url string) (status int, text string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	response, err := client.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

// Every metric of a broker that has done everything keeps the conventions, has
// our prefix or one of the runtime's, and no label that callers can blow up.
func TestMetrics(t *testing.T) {
	a := begin(t, demoConfig(t), app.Options{})
	for _, body := range []string{
		`{"amounts":{"tokens":1,"pages":3},"labels":{"user":"someone-in-particular"}}`,
		`{"amounts":{"tokens":20000}}`, `{"amounts":{"tokens":-1}}`, `{"account":"no-such-account"}`,
		`{"llm":{"model":"gpt-4o-mini","prompt":"a very private prompt","maxOutputTokens":1}}`,
	} {
		_, grant, _ := call(t, a, "demo", "Reserve", body)
		if id := grant["reservationId"]; id != nil {
			call(t, a, "demo", "Refund", fmt.Sprintf(`{"reservationId":%q,"unused":true}`, id))
		}
	}
	status, text := get(t, a.URL()+"/metrics")
	if status != http.StatusOK {
		t.Fatalf("%d %s", status, text)
	}
	problems, err := promlint.New(bytes.NewBufferString(text)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, problem := range problems {
		t.Errorf("%s: %s", problem.Metric, problem.Text)
	}
	rooms := map[string]bool{}
	for line := range strings.Lines(text) {
		name, found := strings.CutPrefix(line, "# TYPE ")
		if !found {
			continue
		}
		name, _, _ = strings.Cut(name, " ")
		room, ours := strings.CutPrefix(name, "budgetd_")
		if !ours && !strings.HasPrefix(name, "go_") && !strings.HasPrefix(name, "process_") && !strings.HasPrefix(name, "promhttp_") {
			t.Errorf("%s does not begin with budgetd_", name)
		}
		room, _, _ = strings.Cut(room, "_")
		rooms[room] = true
	}
	for _, room := range []string{"rpc", "reservation", "memstore", "ledger", "estimator", "quota", "auth", "ops", "alerts"} {
		if !rooms[room] {
			t.Errorf("the room %s has no metrics", room)
		}
	}
	for _, private := range []string{"someone-in-particular", "private prompt", "no-such-account", `"pages"`, a.Addr()} {
		if strings.Contains(text, private) {
			t.Errorf("the metrics tell %q", private)
		}
	}
	if !strings.Contains(text, `budgetd_ops_build_info{goversion="go`) {
		t.Error("the build is not told")
	}
}

// Which pages are where, and that readiness ends before the rest does.
func TestPages(t *testing.T) {
	alone := demoConfig(t)
	split := demoConfig(t)
	split.OpsListen, split.Pprof = "127.0.0.1:0", true
	for name, test := range map[string]struct {
		app  *app.App
		want map[string]int // by "api/page" or "ops/page"
	}{
		"one port": {begin(t, alone, app.Options{}), map[string]int{
			"api/healthz": 200, "api/readyz": 200, "api/metrics": 200, "api/debug/pprof/": 404, "api/": 404,
		}},
		"two ports": {begin(t, split, app.Options{}), map[string]int{
			"api/healthz": 200, "api/readyz": 200, "api/metrics": 404, "api/debug/pprof/": 404,
			"ops/healthz": 200, "ops/readyz": 200, "ops/metrics": 200, "ops/debug/pprof/": 200, "ops/debug/pprof/heap": 200,
			"ops/budget.v1.BudgetService/Reserve": 404,
		}},
	} {
		for page, want := range test.want {
			where, path, _ := strings.Cut(page, "/")
			address := test.app.Addr()
			if where == "ops" {
				address = test.app.OpsAddr()
			}
			if status, text := get(t, "http://"+address+"/"+path); status != want {
				t.Errorf("%s: %s: %d %.100s, want %d", name, page, status, text, want)
			}
		}
	}
}

// A broker that may be reached from elsewhere serves no metrics there, and says
// less.
func TestPagesOutside(t *testing.T) {
	c := demoConfig(t)
	c.Demo, c.Listen = false, "0.0.0.0:0"
	out := &broker.Output{}
	a := begin(t, c, app.Options{Out: out})
	_, port, err := net.SplitHostPort(a.Addr())
	if err != nil {
		t.Fatal(err)
	}
	base := "http://127.0.0.1:" + port
	if status, _ := get(t, base+"/metrics"); status != http.StatusNotFound {
		t.Errorf("metrics: %d", status)
	}
	// There is no account yet, which is why it is not ready; that is told to
	// operators only.
	if status, text := get(t, base+"/readyz"); status != http.StatusServiceUnavailable || text != "not ready\n" {
		t.Errorf("readyz: %d %q", status, text)
	}
	for _, want := range []string{"without TLS", "set ops_listen"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the log does not warn of %q: %s", want, out)
		}
	}
}

// grpcurl and probes find what they need, without a key.
func TestHealthAndReflection(t *testing.T) {
	a := begin(t, demoConfig(t), app.Options{})
	check := func(service string) (int, string) {
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		response, err := client.Post(a.URL()+"/grpc.health.v1.Health/Check", "application/json", strings.NewReader(fmt.Sprintf(`{"service":%q}`, service)))
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		return response.StatusCode, string(text)
	}
	for _, service := range []string{"", budgetv1connect.BudgetServiceName, ratelimit.Name} {
		if status, text := check(service); status != http.StatusOK || !strings.Contains(text, "SERVING") || strings.Contains(text, "NOT") {
			t.Errorf("health of %q: %d %s", service, status, text)
		}
	}
	if status, text := check("no.Such"); status != http.StatusNotFound {
		t.Errorf("health of a service that is none: %d %s", status, text)
	}

	transport := &http.Transport{Protocols: &http.Protocols{}}
	transport.Protocols.SetUnencryptedHTTP2(true)
	defer transport.CloseIdleConnections()
	stream := grpcreflect.NewClient(&http.Client{Transport: transport}, a.URL(), connect.WithGRPC()).NewStream(context.Background())
	names, err := stream.ListServices()
	if err != nil {
		t.Fatal(err)
	}
	for _, service := range []string{budgetv1connect.BudgetServiceName, ratelimit.Name} {
		if !slices.Contains(names, protoreflect.FullName(service)) {
			t.Errorf("services: %v, without %s", names, service)
		}
		if files, err := stream.FileContainingSymbol(protoreflect.FullName(service)); err != nil || len(files) == 0 {
			t.Errorf("the file of %s: %v, %v", service, files, err)
		}
	}
	if _, err := stream.Close(); err != nil {
		t.Error(err)
	}
}

// certificate writes a self-signed pair for 127.0.0.1 with this serial number.
func certificate(t testing.TB, dir string, serial int64) (certFile, keyFile string, pool *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), Subject: pkix.Name{CommonName: "budgetd"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	pool = x509.NewCertPool()
	for file, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: der}, keyFile: {Type: "PRIVATE KEY", Bytes: private}} {
		text := pem.EncodeToMemory(block)
		if file == certFile {
			pool.AppendCertsFromPEM(text)
		}
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certFile, keyFile, pool
}

// All protocols work over TLS, on HTTP/1.1 and HTTP/2; old versions do not.
func TestTLS(t *testing.T) {
	c := demoConfig(t)
	var pool *x509.CertPool
	c.TLSCert, c.TLSKey, pool = certificate(t, t.TempDir(), 1)
	a := begin(t, c, app.Options{})
	for name, options := range map[string][]connect.ClientOption{"connect": nil, "grpc": {connect.WithGRPC()}, "grpc-web": {connect.WithGRPCWeb()}} {
		for _, http2 := range []bool{false, true} {
			if name == "grpc" && !http2 {
				continue // gRPC is HTTP/2 only
			}
			transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}, Protocols: &http.Protocols{}}
			transport.Protocols.SetHTTP1(!http2)
			transport.Protocols.SetHTTP2(http2)
			api := budgetv1connect.NewBudgetServiceClient(&http.Client{Transport: demoKey{transport}}, a.URL(), options...)
			if _, err := api.Reserve(context.Background(), connect.NewRequest(&budgetv1.ReserveRequest{})); err != nil {
				t.Errorf("%s, HTTP/2 %v: %v", name, http2, err)
			}
			transport.CloseIdleConnections()
		}
	}
	old, err := tls.Dial("tcp", a.Addr(), &tls.Config{RootCAs: pool, MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10})
	if err == nil {
		old.Close()
		t.Error("TLS 1.1 is accepted")
	}
}
