package redisstore

import (
	"context"

	"github.com/budgetd/budgetd/quota"
	"github.com/budgetd/budgetd/reservation"
)

// Push is one script call.
func (s *Store) Push(ctx context.Context, account string, usage []reservation.CounterUsage) error {
	if err := reservation.ValidatePush(account, usage); err != nil {
		return err
	}
	p := s.account(account)
	packed, keys := s.packUsage(p, usage, []string{p.hash(), p.dues(), p.index()})
	a := make(args, 0, 64+len(packed))
	a.int(s.now())
	a.str(p.name)
	a.bytes(packed)
	a.int(s.idle)
	out, err := s.run(ctx, scriptPush, keys, a)
	if err != nil {
		return err
	}
	s.reclaimed(out.int())
	return out.err
}

// packUsage packs ledger values as the scripts take them, and adds the keys that
// the counters have of their own.
func (s *Store) packUsage(p space, usage []reservation.CounterUsage, keys []string) (args, []string) {
	var packed args
	packed.list(6 * len(usage))
	for i := range usage {
		u := &usage[i]
		keys = s.packQuota(&packed, p, u.Counter, u.Period, keys)
		packed.int(int64(u.Used))
		packed.int(u.Version)
	}
	return packed, keys
}

// packQuota packs which quota counter is meant, in four values, and adds the key
// that it has of its own.
func (s *Store) packQuota(packed *args, p space, counter reservation.Counter, period quota.Period, keys []string) []string {
	where, ref := s.place(p, quota.KindQuota, counter)
	if where == inKey {
		keys = append(keys, ref)
	}
	packed.str(ref)
	packed.int(int64(where))
	packed.str(period.Key)
	packed.int(period.End.UnixMicro())
	return keys
}
