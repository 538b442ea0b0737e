package auth

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// The broker asks for no more than this.
var _ interface {
	Current() (id uint16, key []byte)
	ByID(id uint16) (key []byte, ok bool)
} = (*SigningKeys)(nil)

func openSigning(t *testing.T, db *sql.DB, config SigningConfig) *SigningKeys {
	t.Helper()
	setDefault(&config.Wait, storeTimeout)
	s, err := OpenSigningKeys(t.Context(), db, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestFirstSigningKey(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *sql.DB) {
		now := newClock()
		nodes := make([]*SigningKeys, 8)
		var start, done sync.WaitGroup
		start.Add(1)
		for i := range nodes {
			db := open()
			done.Go(func() {
				start.Wait()
				var err error
				if nodes[i], err = OpenSigningKeys(t.Context(), db, SigningConfig{Clock: now.Now}); err != nil {
					t.Error(err)
				}
			})
		}
		start.Done()
		done.Wait()
		if t.Failed() {
			return
		}
		id, key := nodes[0].Current()
		if id != 1 || len(key) != 32 || bytes.Equal(key, make([]byte, 32)) {
			t.Fatalf("the first key is %d with %d bytes", id, len(key))
		}
		for i, node := range nodes {
			if otherID, other := node.Current(); otherID != id || !bytes.Equal(other, key) {
				t.Errorf("node %d has another key", i)
			}
			if verify, ok := node.ByID(id); !ok || !bytes.Equal(verify, key) {
				t.Errorf("node %d does not verify with it", i)
			}
			if _, ok := node.ByID(0); ok {
				t.Error("there is a key 0")
			}
		}
	})
}

func TestRotate(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *sql.DB) {
		now := newClock()
		db := open()
		config := SigningConfig{Clock: now.Now, RefreshEvery: time.Second, SignAfter: 10 * time.Second, VerifyFor: 48 * time.Hour}
		here, there := openSigning(t, db, config), openSigning(t, open(), config)
		_, first := here.Current()
		id, err := here.Rotate(t.Context())
		if err != nil || id != 2 {
			t.Fatalf("Rotate = %d, %v, want 2", id, err)
		}
		// Until everyone has read the new key, nobody signs with it.
		now.Advance(10*time.Second - time.Microsecond)
		if id, _ := here.Current(); id != 1 {
			t.Errorf("the node signs with key %d before SignAfter", id)
		}
		now.Advance(time.Microsecond)
		id, second := here.Current()
		if id != 2 || bytes.Equal(first, second) || len(second) != 32 {
			t.Errorf("after SignAfter the node signs with key %d", id)
		}
		// The other node has not refreshed. It signs with what it has, and
		// verifies what it meets.
		if id, key := there.Current(); id != 1 || !bytes.Equal(key, first) {
			t.Errorf("the late node signs with key %d", id)
		}
		if key, ok := there.ByID(2); !ok || !bytes.Equal(key, second) {
			t.Error("the late node does not verify with the new key")
		}
		if id, _ := there.Current(); id != 2 {
			t.Errorf("having met the new key, the late node signs with %d", id)
		}
		// The first was retired when the second began to sign.
		now.Advance(48 * time.Hour)
		if key, ok := here.ByID(1); !ok || !bytes.Equal(key, first) {
			t.Error("the retired key does not verify until VerifyFor")
		}
		now.Advance(time.Microsecond)
		if _, ok := here.ByID(1); ok {
			t.Error("the retired key verifies after VerifyFor")
		}
		if id, err := here.Rotate(t.Context()); err != nil || id != 3 {
			t.Fatalf("Rotate = %d, %v, want 3", id, err)
		}
		var rows int
		if err := db.QueryRowContext(t.Context(), `SELECT count(*) FROM mac_keys`).Scan(&rows); err != nil || rows != 2 {
			t.Errorf("%d rows, %v, want 2: key 1 is of no use", rows, err)
		}
	})
}

// Several rotations in a row: the last one made is the one that signs in the
// end, on all nodes the same, and all verify.
func TestRotateConcurrently(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *sql.DB) {
		now := newClock()
		config := SigningConfig{Clock: now.Now}
		var mu sync.Mutex
		ids := make(map[uint16]bool)
		var done sync.WaitGroup
		for range 4 {
			node := openSigning(t, open(), config)
			done.Go(func() {
				for range 3 {
					id, err := node.Rotate(t.Context())
					if err != nil {
						t.Error(err)
					}
					mu.Lock()
					ids[id] = true
					mu.Unlock()
				}
			})
		}
		done.Wait()
		if len(ids) != 12 {
			t.Errorf("twelve rotations made %d keys", len(ids))
		}
		now.Advance(defaultSignAfter)
		node := openSigning(t, open(), config)
		if id, _ := node.Current(); id != 13 {
			t.Errorf("key %d signs, want 13", id)
		}
		for id := uint16(1); id <= 13; id++ {
			if _, ok := node.ByID(id); !ok {
				t.Errorf("key %d does not verify", id)
			}
		}
	})
}

// Whatever ids callers make up, the store is asked once a second.
func TestStrangeSigningIDs(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *sql.DB) {
		now := newClock()
		registry := prometheus.NewRegistry()
		s := openSigning(t, open(), SigningConfig{Clock: now.Now, Registerer: registry})
		reads := func() float64 { return counted(t, registry, "budgetd_auth_signing_refreshes_total", "ok") }
		before := reads()
		var callers sync.WaitGroup
		for i := range 200 {
			callers.Go(func() {
				if _, ok := s.ByID(uint16(1000 + i)); ok {
					t.Error("a made-up id has a key")
				}
			})
		}
		callers.Wait()
		if n := reads() - before; n != 1 {
			t.Errorf("200 made-up ids at one instant made %v reads, want 1", n)
		}
		now.Advance(999 * time.Millisecond)
		s.ByID(7)
		if n := reads() - before; n != 1 {
			t.Errorf("%v reads within a second, want 1", n)
		}
		now.Advance(time.Millisecond)
		s.ByID(7)
		if n := reads() - before; n != 2 {
			t.Errorf("%v reads after a second, want 2", n)
		}
	})
}

func TestSigningStoreAway(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *sql.DB) {
		now := newClock()
		var logged bytes.Buffer
		db := open()
		registry := prometheus.NewRegistry()
		s := openSigning(t, db, SigningConfig{Clock: now.Now, Registerer: registry, Log: slog.New(slog.NewTextHandler(&logged, nil))})
		id, key := s.Current()
		if _, err := open().ExecContext(t.Context(), `DELETE FROM mac_keys`); err != nil {
			t.Fatal(err)
		}
		if err := s.Refresh(t.Context()); err == nil || !strings.Contains(err.Error(), "emptied") {
			t.Errorf("Refresh of an emptied table: %v", err)
		}
		db.Close()
		for range 3 {
			if err := s.Refresh(t.Context()); !errors.Is(err, ErrUnavailable) {
				t.Errorf("Refresh: %v, want ErrUnavailable", err)
			}
		}
		if _, err := s.Rotate(t.Context()); !errors.Is(err, ErrUnavailable) {
			t.Errorf("Rotate: %v, want ErrUnavailable", err)
		}
		if again, same := s.Current(); again != id || !bytes.Equal(same, key) {
			t.Error("the key was lost with the store")
		}
		if _, ok := s.ByID(9); ok {
			t.Error("a made-up id has a key")
		}
		if n := strings.Count(logged.String(), "cannot be read"); n != 1 {
			t.Errorf("the outage was logged %d times: %s", n, logged.String())
		}
		if _, err := OpenSigningKeys(t.Context(), db, SigningConfig{}); !errors.Is(err, ErrUnavailable) {
			t.Errorf("OpenSigningKeys: %v, want ErrUnavailable", err)
		}
		for _, shown := range []string{logged.String(), fmt.Sprint(s), fmt.Sprintf("%+v %#v %s", s, s, s)} {
			for _, form := range []string{string(key), fmt.Sprintf("%x", key), strings.Trim(fmt.Sprint(key), "[]")} {
				if strings.Contains(shown, form) {
					t.Errorf("the key is in %s", shown)
				}
			}
		}
	})
}

func TestSigningIDsRunOut(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *sql.DB) {
		db := open()
		s := openSigning(t, db, SigningConfig{})
		if _, err := db.ExecContext(t.Context(), `UPDATE mac_keys SET id = 65535`); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Rotate(t.Context()); err == nil || !strings.Contains(err.Error(), "all 65535 ids are used") {
			t.Errorf("Rotate: %v", err)
		}
		if err := s.Refresh(t.Context()); err != nil {
			t.Fatal(err)
		}
		if id, _ := s.Current(); id != 65535 {
			t.Errorf("key %d signs", id)
		}
	})
}

func TestSigningConfig(t *testing.T) {
	eachStore(t, func(t *testing.T, open func() *sql.DB) {
		for want, config := range map[string]SigningConfig{
			"RefreshEvery: -1ns": {RefreshEvery: -1},
			"SignAfter: 9s":      {SignAfter: 9 * time.Second},
			"VerifyFor: 1h":      {VerifyFor: time.Hour},
			"wait: -1s":          {Wait: -time.Second},
		} {
			if _, err := OpenSigningKeys(t.Context(), open(), config); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%+v: %v, want an error with %q", config, err, want)
			}
		}
	})
}
