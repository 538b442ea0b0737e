package auth

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"database/sql"
	"errors"
	"time"
)

// Why a credential is refused. The first is what a stranger learns, whatever
// is wrong with his key; the next two are said only to who holds the key.
var (
	ErrInvalidKey = errors.New("the API key is not valid")
	ErrKeyRevoked = errors.New("the API key was revoked")
	ErrKeyExpired = errors.New("the API key has expired")
)

// ErrUnavailable says that the store could not be asked, or did not answer in
// time. The key may be good: trying again is right.
var ErrUnavailable = errors.New("the store does not answer")

// errStranger says that the store has no key of that id.
var errStranger = errors.New("no such id")

// errUnreadable says that a row has words that this version does not know.
var errUnreadable = errors.New("cannot be read")

// keyRecord is a key as the store has it.
type keyRecord struct {
	Key
	hash   [sha256.Size]byte
	readAt time.Time // before the store was asked
	doubt  bool      // some key changed since; see Recheck
}

// lookup is one question to the store, shared by all who have it.
type lookup struct {
	startedAt time.Time     // by time.Now
	done      chan struct{} // closed when the rest is set
	record    keyRecord
	err       error
}

// Authenticate returns whose key it is. The error is or wraps [ErrInvalidKey]
// (malformed and unknown look alike), [ErrKeyRevoked], [ErrKeyExpired],
// [ErrUnavailable], or the context's.
func (k *Keys) Authenticate(ctx context.Context, key string) (Principal, error) {
	id, ok := parseKey(key)
	if !ok {
		return Principal{}, ErrInvalidKey
	}
	record, err := k.record(ctx, id)
	if err != nil && !errors.Is(err, errStranger) {
		return Principal{}, err
	}
	// Also for a stranger, whose record is empty, so that the time taken does
	// not tell an id that exists from one that does not.
	hash := hashKey(key)
	same := subtle.ConstantTimeCompare(hash[:], record.hash[:]) == 1
	if err != nil || !same {
		return Principal{}, ErrInvalidKey
	}
	if err := record.usable(k.config.Clock()); err != nil {
		return Principal{}, err
	}
	return Principal{KeyID: record.ID, Name: record.Name, Role: record.Role, Accounts: record.Accounts}, nil
}

// record returns what the store has under the id, at most TTL old while the
// store answers. The error is errStranger, ErrUnavailable or the context's.
func (k *Keys) record(ctx context.Context, id string) (keyRecord, error) {
	now := k.config.Clock()
	k.mu.Lock()
	record, known := k.known.get(id)
	age := now.Sub(record.readAt)
	fresh := known && !record.doubt && age >= 0 && age < k.config.TTL
	if !known {
		askedAt, asked := k.unknown.get(id)
		if age := now.Sub(askedAt); asked && age >= 0 && age < k.config.TTL {
			k.mu.Unlock()
			k.metrics.cache.WithLabelValues("unknown").Inc()
			return keyRecord{}, errStranger
		}
	}
	// A clock that was set back makes the age negative; how old the record is
	// then nobody knows.
	usable := known && age >= 0 && age < k.config.StaleFor
	var question *lookup
	// Asking from half the time on lets a key in steady use never wait.
	if !fresh || age >= k.config.TTL/2 {
		question = k.ask(ctx, id, known)
	}
	// While the store is away nobody has to find that out again by waiting.
	hopeless := k.storeAway && usable
	k.mu.Unlock()

	if fresh {
		k.metrics.cache.WithLabelValues("fresh").Inc()
		return record, nil
	}
	if question != nil && !hopeless {
		answer, err := question.wait(ctx, k.config.Wait)
		if err == nil || errors.Is(err, errStranger) {
			k.metrics.cache.WithLabelValues("asked").Inc()
			return answer, err
		}
		if ctx.Err() != nil {
			return keyRecord{}, ctx.Err()
		}
	}
	if usable {
		k.metrics.cache.WithLabelValues("stale").Inc()
		return record, nil
	}
	k.metrics.cache.WithLabelValues("unavailable").Inc()
	return keyRecord{}, ErrUnavailable
}

// ask returns the question for the id that is under way, or starts one. It is
// nil when too many strangers are being looked up, or Keys is closed. k.mu is
// held.
func (k *Keys) ask(ctx context.Context, id string, known bool) *lookup {
	if question := k.lookups[id]; question != nil {
		return question
	}
	if k.closed || !known && k.strangers >= maxStrangers {
		return nil
	}
	question := &lookup{startedAt: time.Now(), done: make(chan struct{})}
	k.lookups[id] = question
	if !known {
		k.strangers++
	}
	k.running.Add(1)
	go func() {
		defer k.running.Done()
		// Others may wait for the answer after this caller hung up.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), storeTimeout)
		defer cancel()
		k.answer(ctx, id, question, !known)
	}()
	return question
}

// answer asks the store, remembers what it says, and wakes all who wait.
func (k *Keys) answer(ctx context.Context, id string, question *lookup, stranger bool) {
	askedAt := k.config.Clock()
	started := time.Now()
	record, err := scanKey(k.db.QueryRowContext(ctx, selectKeys+` WHERE id = $1`, id))
	k.metrics.lookupSeconds.Observe(time.Since(started).Seconds())
	record.readAt = askedAt

	k.mu.Lock()
	defer k.mu.Unlock()
	if stranger {
		k.strangers--
	}
	unreadable := errors.Is(err, errUnreadable)
	failed := err != nil && !unreadable && !errors.Is(err, sql.ErrNoRows)
	k.noteStore(failed, err)
	if unreadable {
		k.config.Log.Error("an API key is refused: its row has words that this version does not know", "error", err)
	}
	// Forgotten meanwhile (see forget): the answer may be older than that.
	current := k.lookups[id] == question
	if current {
		delete(k.lookups, id)
	}
	switch {
	case failed:
		question.err = ErrUnavailable
	case err != nil:
		question.err = errStranger
		if current {
			k.known.remove(id)
			k.unknown.put(id, askedAt)
		}
	default:
		question.record = record
		if current {
			k.unknown.remove(id)
			k.known.put(id, record)
		}
	}
	k.metrics.cached.Set(float64(k.known.len()))
	close(question.done)
}

// noteStore logs when the store goes away or comes back. k.mu is held.
func (k *Keys) noteStore(failed bool, err error) {
	if failed == k.storeAway {
		return
	}
	k.storeAway = failed
	if failed {
		k.config.Log.Warn("the store of API keys does not answer; known keys go on working", "stale_for", k.config.StaleFor, "error", err)
	} else {
		k.config.Log.Info("the store of API keys answers again")
	}
}

// forget makes the next call with the key ask the store.
func (k *Keys) forget(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.known.remove(id)
	k.unknown.remove(id)
	delete(k.lookups, id)
	k.metrics.cached.Set(float64(k.known.len()))
}

// Recheck makes the next call with each key ask the store, as when keys are said
// to have changed. While the store does not answer, what is known goes on
// working as ever.
func (k *Keys) Recheck() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.known.each(func(record *keyRecord) { record.doubt = true })
	k.unknown = newRecent[time.Time](k.config.MaxUnknown)
	clear(k.lookups)
}

// wait returns the answer, or ErrUnavailable once the question is older than
// that: so only the first calls that meet a frozen store wait for it.
func (l *lookup) wait(ctx context.Context, most time.Duration) (keyRecord, error) {
	timer := time.NewTimer(time.Until(l.startedAt.Add(most)))
	defer timer.Stop()
	select {
	case <-l.done:
		return l.record, l.err
	case <-timer.C:
		return keyRecord{}, ErrUnavailable
	case <-ctx.Done():
		return keyRecord{}, ctx.Err()
	}
}
