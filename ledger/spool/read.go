package spool

import (
	"context"
	"fmt"
	"time"

	"github.com/budgetd/budgetd/ledger"
)

// Usage implements [ledger.Ledger]: what is spooled for the accounts of the
// keys is posted first, so that the rows have everything that this node has
// acknowledged. While the ledger is away it fails at once if anything is.
func (s *Spool) Usage(ctx context.Context, keys []ledger.UsageKey) ([]ledger.Usage, error) {
	for i := range keys {
		account := keys[i].Account
		if !s.held.has(account) {
			continue
		}
		if s.away.Load() {
			return nil, fmt.Errorf("%w: read usage: closings of account %q wait on this node's disk for the ledger to answer", ledger.ErrUnavailable, account)
		}
		if err := s.drainAll(ctx, account); err != nil {
			if isAway(err) && ctx.Err() == nil {
				s.lost(err)
			}
			return nil, err
		}
	}
	return s.Ledger.Usage(ctx, keys)
}

// Closing implements [ledger.Ledger]. It finds closings in the spool too, where
// they stand for what the ledger will hold.
func (s *Spool) Closing(ctx context.Context, account string, reservation [16]byte, minted time.Time) (ledger.Closing, error) {
	if err := ledger.ValidateClosingKey(account, minted); err != nil {
		return ledger.Closing{}, err
	}
	if err := s.enter(); err != nil {
		return ledger.Closing{}, err
	}
	defer s.calls.Done()
	wanted := ledger.Closing{Account: account, Reservation: reservation, Minted: minted}
	if !s.held.mayHave([]ledger.Closing{wanted}) {
		return s.Ledger.Closing(ctx, account, reservation, minted)
	}
	spooled, found, err := s.file.closing(ctx, keyOf(&wanted))
	if err != nil {
		return ledger.Closing{}, s.file.failed("read a closing", err)
	}
	sortLines(account, spooled.closing.Lines)
	spooled.closing.Spooled = true
	if found && s.away.Load() {
		return spooled.closing, nil
	}
	kept, err := s.Ledger.Closing(ctx, account, reservation, minted)
	if found && (err != nil || kept.Rank < spooled.closing.Rank) {
		return spooled.closing, nil
	}
	return kept, err
}

// Ping answers nil when an Append can be acknowledged now: the ledger answers,
// or it is away and the file can be written.
func (s *Spool) Ping(ctx context.Context) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.calls.Done()
	if !s.away.Load() {
		err := s.Ledger.Ping(ctx)
		if err == nil || !isAway(err) || ctx.Err() != nil {
			return err
		}
	}
	return s.probe(ctx)
}

// probe writes to the file, and takes it back.
func (s *Spool) probe(ctx context.Context) error {
	select {
	case s.turn <- struct{}{}:
		defer func() { <-s.turn }()
	case <-ctx.Done():
		return fmt.Errorf("%w: wait for the spool's file: %w", ledger.ErrUnavailable, ctx.Err())
	}
	if err := s.file.probe(); err != nil {
		return s.file.failed("write", err)
	}
	return nil
}
