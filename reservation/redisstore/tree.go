package redisstore

import (
	"slices"

	"github.com/budgetd/budgetd/reservation"
)

// parent packs a parent's id, "" for none.
func (a *args) parent(id reservation.ID) {
	if id == (reservation.ID{}) {
		a.str("")
		return
	}
	a.bytes(id[:])
}

// set packs a set of n holds: a text with 1 for each that is in it, else 0; "" for
// the empty one.
func (a *args) set(holds reservation.HoldSet, n int) {
	if holds == 0 {
		a.str("")
		return
	}
	text := make([]byte, n)
	for i := range text {
		text[i] = '0'
		if holds.Has(i) {
			text[i] = '1'
		}
	}
	a.bytes(text)
}

// withoutForecast is the request whose hold i, which its parent pays, takes none.
func withoutForecast(r *reservation.ReserveRequest, i int) *reservation.ReserveRequest {
	if r.Output == nil {
		return r
	}
	request, output := *r, *r.Output
	output.Slopes = slices.Clone(output.Slopes)
	output.Slopes[i].Tolerance = 0
	request.Output = &output
	return &request
}
