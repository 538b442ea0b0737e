package middleware

import (
	"net/netip"
	"strings"
	"testing"
)

var ours = []string{"10.0.0.0/8", "2001:db8:aaaa::/48", "::ffff:192.168.0.0/112", "127.0.0.1"}

func read(t testing.TB, trusted []string, remote string, lines ...string) string {
	t.Helper()
	p, err := parseProxies(trusted)
	if err != nil {
		t.Fatal(err)
	}
	return addressKey(p.client(remote, lines))
}

func TestClientAddress(t *testing.T) {
	for _, c := range []struct {
		name, want, remote string
		lines              []string
	}{
		{"no proxy", "203.0.113.7", "203.0.113.7:5000", nil},
		{"no proxy, and it lies", "203.0.113.7", "203.0.113.7:5000", []string{"1.1.1.1"}},
		{"one proxy", "203.0.113.7", "10.0.0.1:80", []string{"203.0.113.7"}},
		{"one proxy, and the client lies", "203.0.113.7", "10.0.0.1:80", []string{"10.9.9.9, 1.1.1.1, 203.0.113.7"}},
		{"two proxies", "203.0.113.7", "10.0.0.1:80", []string{"1.1.1.1, 203.0.113.7, 10.0.0.2"}},
		{"repeated lines", "203.0.113.7", "10.0.0.1:80", []string{"1.1.1.1", "203.0.113.7", "10.0.0.3,10.0.0.2"}},
		{"ports", "203.0.113.7", "10.0.0.1:80", []string{"203.0.113.7:4711, 10.0.0.2:80"}},
		{"brackets and a port", "2001:db8:1:2::/64", "10.0.0.1:80", []string{"[2001:db8:1:2:3::4]:4711"}},
		{"brackets", "2001:db8:1:2::/64", "10.0.0.1:80", []string{"[2001:db8:1:2:3::4]"}},
		{"bare IPv6, one subscriber", "2001:db8:1:2::/64", "10.0.0.1:80", []string{"2001:db8:1:2:ffff:ffff:ffff:ffff"}},
		{"IPv4 in IPv6", "203.0.113.7", "[::ffff:10.0.0.1]:80", []string{"::ffff:203.0.113.7, [::ffff:10.0.0.2]:1"}},
		{"a trusted network in IPv6's form", "203.0.113.7", "192.168.3.4:80", []string{"203.0.113.7"}},
		{"a proxy on IPv6", "203.0.113.7", "[2001:db8:aaaa::1]:80", []string{"203.0.113.7"}},
		{"all trusted", "10.3.3.3", "10.0.0.1:80", []string{"10.3.3.3, 10.2.2.2"}},
		{"a zone", "fe80::/64", "[fe80::1%eth0]:80", nil},
		{"empty elements", "203.0.113.7", "10.0.0.1:80", []string{" ,203.0.113.7, ,", "", ","}},
		{"no address", "10.0.0.2", "10.0.0.1:80", []string{"203.0.113.7, unknown, 10.0.0.2"}},
		{"a port out of range", "10.0.0.1", "10.0.0.1:80", []string{"203.0.113.7:70000"}},
		{"brackets around IPv4", "10.0.0.1", "10.0.0.1:80", []string{"[203.0.113.7]"}},
		{"a socket that nobody trusts", "unix", "@", []string{"203.0.113.7"}},
		{"more hops than are read", "10.0.0.2", "10.0.0.1:80", []string{"203.0.113.7," + strings.Repeat("10.0.0.2,", maxHops)}},
	} {
		if got := read(t, ours, c.remote, c.lines...); got != c.want {
			t.Errorf("%s: the client is %s, want %s", c.name, got, c.want)
		}
	}
	if got := read(t, []string{"unix"}, "@", "1.1.1.1, 203.0.113.7"); got != "203.0.113.7" {
		t.Errorf("a trusted socket: the client is %s", got)
	}
}

func TestTrustedProxiesAreRead(t *testing.T) {
	for _, bad := range []string{"", "10.0.0.0/33", "10.0.0.1:80", "fe80::1%eth0", "localhost", "::ffff:0:0/95"} {
		if _, err := parseProxies([]string{"10.0.0.0/8", bad}); err == nil || !strings.HasPrefix(err.Error(), "trusted proxies[1]: ") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// FuzzClientAddress compares with a reading of the whole list from the left.
func FuzzClientAddress(f *testing.F) {
	f.Add("10.0.0.1:80", "1.1.1.1, [2001:db8::1]:4, unknown", "::ffff:10.0.0.2,,10.1.1.1:5")
	f.Add("@", ",", "10.0.0.1")
	f.Fuzz(func(t *testing.T, remote, line1, line2 string) {
		p, err := parseProxies(ours)
		if err != nil {
			t.Fatal(err)
		}
		got := p.client(remote, []string{line1, line2})

		chain := []netip.Addr{}
		for _, entry := range strings.Split(line1+","+line2, ",") {
			if entry = strings.Trim(entry, " \t"); entry == "" {
				continue
			}
			address, ok := parseHop(entry)
			if !ok {
				chain = chain[:0] // nobody knows what was left of it
				continue
			}
			chain = append(chain, address)
		}
		peer, _ := parseHop(remote)
		chain = append(chain, peer)
		chain = chain[max(0, len(chain)-maxHops-1):]
		want := chain[0]
		for _, hop := range chain {
			if !p.trusts(hop) {
				want = hop // the last one that is not trusted
			}
		}
		if got != want {
			t.Errorf("%q from %q: the client is %v, want %v", line1+" / "+line2, remote, got, want)
		}
		if key := addressKey(got); len(key) > 64 || got.Is6() && netip.MustParsePrefix(key).Bits() != 64 {
			t.Errorf("key %q of %v", key, got)
		}
	})
}
