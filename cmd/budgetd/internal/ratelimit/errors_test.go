package ratelimit_test

import (
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/budgetd/budgetd/cmd/budgetd/internal/ratelimit"
)

// What can't be read or is not the caller's is an error that says what to do,
// and charges nothing.
func TestErrors(t *testing.T) {
	client := begin(t, ratelimit.NameByDomain)
	many := slices.Repeat([]*ratelimitv3.RateLimitDescriptor{described("path", "/")}, ratelimit.MaxDescriptors+1)
	wide := described(slices.Repeat([]string{"path", "/"}, 40)...)
	both := described("already_used", "true")
	both.IsNegativeHits = true
	none := described("already_used", "true")
	none.HitsAddend = wrapperspb.UInt64(0)
	huge := described("path", "/")
	huge.HitsAddend = wrapperspb.UInt64(1 << 63)
	for want, request := range map[string]*rlsv3.RateLimitRequest{
		`not_found: account: "nobody" is unknown, or is none that this key may use`: asked("nobody", 1, described("path", "/")),
		`not_found: account: "other" is unknown, or is none that this key may use`:  asked("other", 1, described("path", "/")),
		`domain: has 0 bytes; accepted: 1 to 256 bytes`:                             asked("", 1, described("path", "/")),
		`account: account: "a b" is not an account name`:                            asked("a b", 1, described("path", "/")),
		`descriptors: has 0 descriptors; accepted: 1 to 16`:                         asked("demo", 1),
		`descriptors: has 17 descriptors; accepted: 1 to 16`:                        asked("demo", 1, many...),
		`descriptors[0].entries: has 40 entries; accepted: at most 36`:              asked("demo", 1, wide),
		`descriptors[1].entries: labels["Path"]: the name does not match`:           asked("demo", 1, described("path", "/"), described("Path", "/")),
		`descriptors[0].entries: labels["account"]: "account" is not a label`:       asked("demo", 1, described("account", "demo")),
		`descriptors[0].entries[1]: "path" has another value`:                       asked("demo", 1, described("path", "/", "path", "/v1")),
		`descriptors[0].entries: the meter in_flight counts slots`:                  asked("demo", 1, described("meter", "in_flight")),
		`descriptors[0].entries: the meter is none`:                                 asked("demo", 1, described("meter", "No Meter")),
		`descriptors[0].is_negative_hits: is set beside already_used`:               asked("demo", 1, both),
		`descriptors[0].entries: already_used is "maybe"`:                           asked("demo", 1, described("already_used", "maybe")),
		`descriptors[0].hits_addend: 0 is nothing`:                                  asked("demo", 1, none),
		`descriptors[0].hits_addend: 9223372036854775808 is too much`:               asked("demo", 1, huge),
	} {
		got := told(t, client, request)
		if !strings.HasPrefix(want, "not_found") {
			want = "invalid_argument: " + want
		}
		if !strings.HasPrefix(got, want) {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if got := told(t, client, asked("demo", 1, described("path", "/"))); !strings.HasPrefix(got, "OK; OK default 10/5 SECOND r=9 ") {
		t.Errorf("something was charged: %s", got)
	}
}

// The entry account, or the key, may name the account; the domain is then a
// label.
func TestNamings(t *testing.T) {
	byEntry := begin(t, ratelimit.NameByEntry)
	for want, request := range map[string]*rlsv3.RateLimitRequest{
		"OK; OK default": asked("gateway", 1, described("account", "demo", "path", "/")),
		`invalid_argument: descriptors[0].entries: has no entry "account"`: asked("demo", 1, described("path", "/")),
		`not_found: account: "other" is unknown`:                           asked("demo", 1, described("account", "demo"), described("account", "other")),
	} {
		if got := told(t, byEntry, request); !strings.HasPrefix(got, want) {
			t.Errorf("%s, want %s", got, want)
		}
	}
	byKey := begin(t, ratelimit.NameByKey)
	if got := told(t, byKey, asked("any gateway", 1, described("path", "/"))); !strings.HasPrefix(got, "OK; OK default") {
		t.Error(got)
	}
	if _, err := ratelimit.NewService(nil, "nobody"); err == nil {
		t.Error("a naming that is none is taken")
	}
}

// A call without a key that works is not let in.
func TestCredential(t *testing.T) {
	for _, credential := range []string{"", "Bearer nobody"} {
		client := beginAs(t, ratelimit.NameByDomain, credential)
		_, err := client.CallUnary(t.Context(), connect.NewRequest(asked("demo", 1, described("path", "/"))))
		if connect.CodeOf(err) != connect.CodeUnauthenticated {
			t.Errorf("%q: %v", credential, err)
		}
	}
}

// What a client can put into a header is no way round a limit: a value that no
// label may have counts as its hash, and is no error that lets the call pass.
func TestLongValueIsLimited(t *testing.T) {
	client := begin(t, ratelimit.NameByDomain)
	for _, value := range []string{strings.Repeat("x", 5000), "a\x01b"} {
		for i, want := range []rlsv3.RateLimitResponse_Code{rlsv3.RateLimitResponse_OK, rlsv3.RateLimitResponse_OVER_LIMIT} {
			answer, err := client.CallUnary(t.Context(), connect.NewRequest(asked("demo", 3, described("user", value))))
			if err != nil || answer.Msg.GetOverallCode() != want {
				t.Errorf("%.10q, call %d: %v %v, want %v", value, i, answer, err, want)
			}
		}
	}
}
