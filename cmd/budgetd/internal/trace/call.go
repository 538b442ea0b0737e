package trace

import (
	"time"

	"github.com/budgetd/budgetd/quota"
)

// Call is one recorded call.
type Call struct {
	File string
	Line int64 // in the file, from 1; 0 in a ledger

	At   time.Time // when it came, in UTC, to the microsecond
	Ends time.Time // when it ended; zero: not recorded

	Account  string // "": not recorded
	Labels   map[string]string
	Provider string // of the model; "" where not recorded
	Model    string // "": not recorded

	// Tokens says that Input and Output are recorded.
	Tokens        bool
	Input, Output int64 // tokens read and written, 0 to MaxRequestTokens
	MaxOutput     int64 // tokens of output that the caller allowed; 0: not recorded

	Amounts quota.Amounts // what it used of other meters, or beside the tokens
	Held    quota.Amounts // what it reserved, where that is recorded
	// HeldAll says that Held is all that it reserved: what it used of other meters
	// was not held.
	HeldAll bool
}

// Calls is a reader of recorded calls: of CSV, of JSON Lines or of a ledger.
type Calls interface {
	// Next returns the next call, io.EOF after the last. After a *LineError it
	// goes on with the next line; any other error is final. What the call
	// refers to is not used again.
	Next() (Call, error)
}

// MaxDuration bounds how long a recorded call took: a lease, of 24 h at most, has
// to outlive it.
const MaxDuration = 24*time.Hour - time.Second

// field is one column of a line.
type field struct {
	name string
	kind fieldKind
	key  string // of a label or a meter
}

type fieldKind uint8

const (
	fieldTime fieldKind = iota + 1
	fieldEnd
	fieldDuration
	fieldAccount
	fieldProvider
	fieldModel
	fieldInput
	fieldOutput
	fieldMaxOutput
	fieldLabel
	fieldAmount
	fieldHeld
)

// fieldNames are the columns that have names of their own, those of the traces
// that Azure publishes among them.
var fieldNames = map[string]fieldKind{
	"time": fieldTime, "TIMESTAMP": fieldTime,
	"end": fieldEnd, "duration": fieldDuration,
	"account": fieldAccount, "provider": fieldProvider, "model": fieldModel,
	"input": fieldInput, "ContextTokens": fieldInput,
	"output": fieldOutput, "GeneratedTokens": fieldOutput,
	"max_output": fieldMaxOutput,
}

// Fields says in words which columns a line may have.
const Fields = "time, end or duration, account, provider, model, input, output, max_output, labels.NAME, amounts.METER, held.METER"
