package reservation

import (
	"time"

	"github.com/budgetd/budgetd/quota"
)

// A refusal leaves no trace unless a hold of the plan says that it does: by
// CountRefusals, or by a Ban. Then, in the same step as the decision,
//
//   - each hold with CountRefusals takes what was asked of it as far as that is left,
//     and nothing gives it back, and
//   - each hold with a Ban that did not fit has one refusal more counted; the one that
//     is too many begins the ban.
//
// Nothing is counted of a refusal that no waiting helps (ExceedsCapacity,
// EnvelopeExhausted), of one by a ban, and of a DryRun; nor of holds that ask for
// nothing or that a parent pays. A Reserve that is sent again, with the same id or
// idempotency key, is refused and counted again: engines remember no refusal.
//
// A Shadow hold counts as it would if it were enforced: its own would-be refusals,
// and where an enforced hold refuses.
//
// What a refusal tells (levels, Remaining, RetryAt, whether there is a ban now) is as
// of after it was counted; which holds it is of, as of before.

// CountsRefusals says whether a refusal of the request may change something.
func (r *ReserveRequest) CountsRefusals() bool {
	for i := range r.Holds { // by index: holds are large, and every refusal asks
		if h := &r.Holds[i]; h.CountRefusals || h.Ban.Refusals > 0 {
			return true
		}
	}
	return false
}

// Least is what hold i asks for at least: its Amount, with Output that of Least tokens.
func (r *ReserveRequest) Least(i int) quota.Amount {
	if r.Output == nil {
		return r.Holds[i].Amount
	}
	return r.Output.amount(i, r.Holds[i].Amount, r.Output.Least)
}

// Hopeless says that no waiting helps.
func (r Reason) Hopeless() bool { return r == ExceedsCapacity || r == EnvelopeExhausted }

// ByBan makes the refusal of a hold, which has a Reason of 0 where it fits, that of a
// ban in force which ends at an instant: whoever comes back then, or when the hold fits
// if that is later. What no waiting helps stays as it is.
func (r Refusal) ByBan(ends time.Time) Refusal {
	if r.Reason.Hopeless() {
		return r
	}
	if r.Reason == 0 || ends.After(r.RetryAt) {
		r.RetryAt = ends
	}
	r.Reason = Banned
	return r
}

func (h *Hold) validateRefusals() error {
	if !h.CountRefusals && h.Ban == (quota.Ban{}) {
		return nil
	}
	if h.Pool != "" {
		return badRequest("pool", "refusals are counted in limits of an account, not in a pool's")
	}
	if h.CountRefusals && (!h.Kind.HasRate() || h.Kind == quota.KindLeakyQueue) {
		return badRequest("count_refusals", "only a bucket, a GCRA or a window counts them")
	}
	if h.Ban == (quota.Ban{}) {
		return nil
	}
	if err := checkRange("ban.refusals", int64(h.Ban.Refusals), 1, quota.MaxBanRefusals); err != nil {
		return err
	}
	if err := checkRange("ban.within", h.Ban.Within, time.Microsecond, quota.MaxBanSpan); err != nil {
		return err
	}
	return checkRange("ban.for", h.Ban.For, time.Microsecond, quota.MaxBanSpan)
}
