package spool

import (
	"hash/maphash"
	"sync"

	"github.com/budgetd/budgetd/ledger"
)

// key is what is unique about a closing in the file.
type key struct {
	account     string
	reservation [16]byte
	month       int // as 202611
}

func keyOf(c *ledger.Closing) key {
	year, month, _ := c.Minted.UTC().Date()
	return key{account: c.Account, reservation: c.Reservation, month: year*100 + int(month)}
}

// held says what is in the file without asking it: every Append has to know.
// Reservations are counted by a hash of their key, about 20 bytes each, so it
// may say yes to one that is not there, never no to one that is.
type held struct {
	seed maphash.Seed

	mu           sync.RWMutex
	reservations map[uint64]int32
	accounts     map[string]int
	total        int
}

func newHeld() *held {
	return &held{seed: maphash.MakeSeed(), reservations: map[uint64]int32{}, accounts: map[string]int{}}
}

func (h *held) add(k key) {
	hash := maphash.Comparable(h.seed, k)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.reservations[hash]++
	h.accounts[k.account]++
	h.total++
}

func (h *held) remove(k key) {
	hash := maphash.Comparable(h.seed, k)
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.reservations[hash]--; h.reservations[hash] == 0 {
		delete(h.reservations, hash)
	}
	if h.accounts[k.account]--; h.accounts[k.account] == 0 {
		delete(h.accounts, k.account)
	}
	h.total--
}

// mayHave says whether the file may have a closing of one of the reservations.
func (h *held) mayHave(closings []ledger.Closing) bool {
	h.mu.RLock()
	defer h.mu.RUnlock()
	if h.total == 0 {
		return false
	}
	for i := range closings {
		if h.reservations[maphash.Comparable(h.seed, keyOf(&closings[i]))] > 0 {
			return true
		}
	}
	return false
}

// has says whether the file has closings of the account.
func (h *held) has(account string) bool {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.accounts[account] > 0
}

// count returns how many closings the file has.
func (h *held) count() int {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return h.total
}
