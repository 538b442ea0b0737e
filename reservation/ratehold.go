package reservation

import "github.com/budgetd/budgetd/quota"

// SetRate has a hold count as a limit that states a rate (see [quota.Kind.HasRate]):
// its kind, and the arithmetic of that.
func (h *Hold) SetRate(limit quota.Limit) {
	h.Kind = limit.Kind
	if limit.Kind.IsWindow() {
		h.Window = limit.Window()
	} else {
		h.Bucket = limit.Bucket()
	}
}
