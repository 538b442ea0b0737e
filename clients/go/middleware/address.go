package middleware

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// maxHops bounds how many entries of X-Forwarded-For are read. A chain of one's
// own proxies is short; a longer list was written by somebody else.
const maxHops = 64

// socketPeer is the word for proxies that come over a Unix socket.
const socketPeer = "unix"

// proxies are those whose X-Forwarded-For is believed.
type proxies struct {
	networks []netip.Prefix
	sockets  bool // a peer without an address is a proxy on this machine
}

// parseProxies reads networks ("10.0.0.0/8"), addresses, and "unix".
func parseProxies(texts []string) (proxies, error) {
	var p proxies
	for i, text := range texts {
		if text == socketPeer {
			p.sockets = true
			continue
		}
		network, err := netip.ParsePrefix(text)
		if err != nil {
			address, err := netip.ParseAddr(text)
			if err != nil || address.Zone() != "" {
				return proxies{}, fmt.Errorf("trusted proxies[%d]: %q is neither a network such as 10.0.0.0/8, nor an address, nor %q", i, text, socketPeer)
			}
			network = netip.PrefixFrom(address, address.BitLen())
		}
		if network.Addr().Is4In6() {
			// What it names is IPv4, and addresses are compared as that.
			const mapped = 96
			if network.Bits() < mapped {
				return proxies{}, fmt.Errorf("trusted proxies[%d]: %q is more than the IPv4 addresses: want ::ffff:0:0/96 or longer", i, text)
			}
			network = netip.PrefixFrom(network.Addr().Unmap(), network.Bits()-mapped)
		}
		p.networks = append(p.networks, network.Masked())
	}
	return p, nil
}

func (p proxies) trusts(address netip.Addr) bool {
	if !address.IsValid() {
		return p.sockets
	}
	return slices.ContainsFunc(p.networks, func(n netip.Prefix) bool { return n.Contains(address) })
}

// client is the address of whoever called the first of the trusted proxies.
//
// Each proxy appends the address of its own caller to X-Forwarded-For, so only
// what stands right of the last untrusted address was written by proxies that
// are trusted: the list is read from the right, beginning with the peer of the
// connection, and the first address that is not a trusted proxy's is the
// client's. What stands left of it may be invented. When all are trusted it is
// the leftmost, a caller within one's own network. An entry that is no address
// ("unknown") ends the reading: the client is then the proxy that wrote it,
// since nothing better is known. Lines are joined in their order, as RFC 9110
// section 5.3 says. The zero Addr: the peer has no address (a Unix socket), and
// nothing else is known.
func (p proxies) client(remote string, forwarded []string) netip.Addr {
	client, _ := parseHop(remote)
	hops := 0
	for _, line := range slices.Backward(forwarded) {
		for more := true; more; {
			if !p.trusts(client) || hops == maxHops {
				return client
			}
			var entry string
			if comma := strings.LastIndexByte(line, ','); comma >= 0 {
				line, entry = line[:comma], line[comma+1:]
			} else {
				entry, more = line, false
			}
			if entry = strings.Trim(entry, " \t"); entry == "" {
				continue // empty elements of a list count for nothing, section 5.6.1.2
			}
			hops++
			address, ok := parseHop(entry)
			if !ok {
				return client
			}
			client = address
		}
	}
	return client
}

// parseHop reads an address with or without a port: "192.0.2.1",
// "192.0.2.1:80", "2001:db8::1", "[2001:db8::1]", "[2001:db8::1]:80". An IPv4
// address in IPv6's form (::ffff:192.0.2.1) is the IPv4 address; a zone is
// dropped.
func parseHop(text string) (netip.Addr, bool) {
	address, err := netip.ParseAddr(text)
	if err != nil {
		var withPort netip.AddrPort
		if withPort, err = netip.ParseAddrPort(text); err == nil {
			address = withPort.Addr()
		} else if inner, ok := strings.CutPrefix(text, "["); ok {
			if inner, ok = strings.CutSuffix(inner, "]"); ok {
				if address, err = netip.ParseAddr(inner); !address.Is6() {
					return netip.Addr{}, false
				}
			}
		}
	}
	if err != nil {
		return netip.Addr{}, false
	}
	return address.WithZone("").Unmap(), true
}

// addressKey names the client of an address: an IPv4 address, or the /64 of an
// IPv6 address, which is what one subscriber gets at least and may draw its
// addresses from (RFC 6177 section 2).
func addressKey(address netip.Addr) string {
	switch {
	case !address.IsValid():
		return socketPeer
	case address.Is4():
		return address.String()
	}
	const subscriber = 64
	return netip.PrefixFrom(address, subscriber).Masked().String()
}
