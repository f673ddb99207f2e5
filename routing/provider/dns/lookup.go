package dns

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/miekg/dns"
	"golang.org/x/sync/errgroup"

	"penstock/routing/provider"
)

// answer is the answer to a query.
type answer struct {
	endpoints []provider.Endpoint
	exists    bool // the name has records
	ttl       time.Duration
	warning   error // servers that did not answer, if others did; nil: none
}

// lookup looks one query up.
type lookup struct {
	*Source
	settings
	unanswered *unanswered
}

// unanswered has why servers did not answer a question that others answered.
type unanswered struct {
	mu  sync.Mutex
	err error // of the first such question
}

func (u *unanswered) add(reasons []string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.err == nil && len(reasons) > 0 {
		u.err = fmt.Errorf("other DNS servers had to be asked (%s)", strings.Join(reasons, "; "))
	}
}

// lookUp returns the complete answer to a query. Names of the search list that
// do not exist are skipped; one that cannot be looked up fails the query, since
// a later one may be another service's.
func (s *Source) lookUp(ctx context.Context, q provider.Query) (answer, error) {
	current, err := s.settings()
	if err != nil {
		return answer{}, err
	}
	l := lookup{s, current, &unanswered{}}
	ttl := s.cfg.MaxTTL
	for _, name := range l.names(q.Service) {
		found, err := l.name(ctx, name, q)
		if err != nil {
			return answer{}, err
		}
		if n := len(found.endpoints); n > s.cfg.MaxEndpoints {
			return answer{}, fmt.Errorf("%s has %d endpoints; maxEndpoints is %d: raise it", name, n, s.cfg.MaxEndpoints)
		}
		if found.exists {
			found.warning = l.unanswered.err
			return found, nil
		}
		ttl = min(ttl, found.ttl)
	}
	return answer{ttl: ttl, warning: l.unanswered.err}, nil
}

// name looks up one name of the search list.
func (l *lookup) name(ctx context.Context, name string, q provider.Query) (answer, error) {
	if isSRV(q) {
		return l.services(ctx, name)
	}
	addrs, ttl, err := l.addresses(ctx, name)
	found := answer{exists: len(addrs) > 0, ttl: ttl}
	for _, a := range addrs {
		found.endpoints = append(found.endpoints, provider.Endpoint{Address: address(a, q.Port), Weight: 1})
	}
	return found, err
}

func address(a netip.Addr, port string) string {
	if a.Is6() {
		return "[" + a.String() + "]:" + port
	}
	return a.String() + ":" + port
}

// addresses returns the IPv4 and IPv6 addresses of a host, each once. That there
// are none of one family shortens no TTL.
func (l *lookup) addresses(ctx context.Context, host string) (addrs []netip.Addr, ttl time.Duration, err error) {
	four, err := l.records(ctx, host, dns.TypeA)
	if err != nil {
		return nil, 0, err
	}
	six, err := l.records(ctx, host, dns.TypeAAAA)
	if err != nil {
		return nil, 0, err
	}
	for _, rr := range slices.Concat(four.list, six.list) {
		var addr netip.Addr
		switch rr := rr.(type) {
		case *dns.A:
			addr, _ = netip.AddrFromSlice(rr.A)
		case *dns.AAAA:
			addr, _ = netip.AddrFromSlice(rr.AAAA)
		}
		if addr.IsValid() {
			addrs = append(addrs, addr.Unmap())
		}
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	switch {
	case len(four.list) == 0 && len(six.list) > 0:
		ttl = six.ttl
	case len(six.list) == 0 && len(four.list) > 0:
		ttl = four.ttl
	default:
		ttl = min(four.ttl, six.ttl)
	}
	return slices.Compact(addrs), ttl, nil
}

// services returns the targets of a name's SRV records. The priorities of endpoints
// count those of the records that have addresses, from 0.
func (l *lookup) services(ctx context.Context, name string) (answer, error) {
	set, err := l.records(ctx, name, dns.TypeSRV)
	if err != nil {
		return answer{}, err
	}
	if len(set.list) > maxTargets {
		return answer{}, fmt.Errorf("%s has %d SRV records; the maximum is %d", name, len(set.list), maxTargets)
	}
	found := answer{exists: len(set.list) > 0, ttl: set.ttl}
	records := make([]*dns.SRV, 0, len(set.list))
	for _, rr := range set.list {
		// The target "." says that the service is not available here.
		if srv, ok := rr.(*dns.SRV); ok && srv.Target != "." {
			records = append(records, srv)
		}
	}
	if len(records) == 0 {
		return found, nil
	}
	slices.SortStableFunc(records, func(a, b *dns.SRV) int { return cmp.Compare(a.Priority, b.Priority) })
	addrs, ttl, err := l.targets(ctx, records)
	if err != nil {
		return answer{}, err
	}
	found.ttl = min(found.ttl, ttl)
	for begin, priority := 0, 0; begin < len(records) && priority <= provider.MaxPriority; {
		end := begin + 1
		for end < len(records) && records[end].Priority == records[begin].Priority {
			end++
		}
		list := endpointsOf(records[begin:end], addrs[begin:end], priority)
		if found.endpoints = append(found.endpoints, list...); len(list) > 0 {
			priority++
		}
		begin = end
	}
	return found, nil
}

// targets returns the addresses of the targets of SRV records.
func (l *lookup) targets(ctx context.Context, list []*dns.SRV) ([][]netip.Addr, time.Duration, error) {
	addrs := make([][]netip.Addr, len(list))
	ttls := make([]time.Duration, len(list))
	g, ctx := errgroup.WithContext(ctx)
	for i, srv := range list {
		g.Go(func() (err error) {
			addrs[i], ttls[i], err = l.addresses(ctx, dns.Fqdn(srv.Target))
			return
		})
	}
	if err := g.Wait(); err != nil {
		return nil, 0, err
	}
	return addrs, slices.Min(ttls), nil
}

// endpointsOf returns the endpoints of SRV records of one priority, whose targets
// have these addresses.
func endpointsOf(list []*dns.SRV, addrs [][]netip.Addr, priority int) []provider.Endpoint {
	targets := make([]target, len(list))
	for i, srv := range list {
		targets[i] = target{weight: int(srv.Weight), addresses: len(addrs[i])}
	}
	weights := shares(targets)
	var endpoints []provider.Endpoint
	for i, srv := range list {
		for _, a := range addrs[i] {
			endpoints = append(endpoints, provider.Endpoint{
				Address: address(a, strconv.Itoa(int(srv.Port))), Weight: weights[i], Priority: priority,
			})
		}
	}
	return endpoints
}

// records is the answer to one question.
type records struct {
	list []dns.RR // of the type that was asked for
	ttl  time.Duration
}

// records asks for the records of a name, and follows CNAMEs to them.
func (l *lookup) records(ctx context.Context, name string, qtype uint16) (records, error) {
	ttl := l.cfg.MaxTTL
	links := 0
	for end := name; ; {
		m, err := l.ask(ctx, end, qtype)
		if err != nil {
			return records{}, err
		}
		asked := end
		list := matching(m, end, qtype, &ttl)
		for len(list) == 0 {
			alias := matching(m, end, dns.TypeCNAME, &ttl)
			if len(alias) == 0 {
				break
			}
			if links++; links > maxChain {
				return records{}, fmt.Errorf("%s leads to more than %d CNAMEs: correct its records", name, maxChain)
			}
			end = dns.Fqdn(alias[0].(*dns.CNAME).Target)
			list = matching(m, end, qtype, &ttl)
		}
		negative, final := l.negativeTTL(m)
		if len(list) == 0 && end != asked && !final {
			continue // the server did not say what is at the end of the chain
		}
		if len(list) == 0 {
			ttl = min(ttl, negative)
		}
		return records{list, max(ttl, l.cfg.MinTTL)}, nil
	}
}

// matching returns the records of a name and type in an answer, and lowers ttl to
// theirs. Other records are ignored: nobody asked for them.
func matching(m *dns.Msg, name string, rrtype uint16, ttl *time.Duration) []dns.RR {
	var list []dns.RR
	for _, rr := range m.Answer {
		h := rr.Header()
		if h.Rrtype != rrtype || h.Class != dns.ClassINET || dns.CanonicalName(h.Name) != dns.CanonicalName(name) {
			continue
		}
		list = append(list, rr)
		*ttl = min(*ttl, time.Duration(h.Ttl)*time.Second)
	}
	return list
}

// negativeTTL returns how long an answer without records counts (RFC 2308), and
// whether the server knows that there are none.
func (l *lookup) negativeTTL(m *dns.Msg) (ttl time.Duration, ok bool) {
	for _, rr := range m.Ns {
		if soa, is := rr.(*dns.SOA); is {
			seconds := min(soa.Hdr.Ttl, soa.Minttl)
			return min(time.Duration(seconds)*time.Second, l.cfg.NegativeTTL), true
		}
	}
	return l.cfg.MinTTL, m.Rcode == dns.RcodeNameError
}
