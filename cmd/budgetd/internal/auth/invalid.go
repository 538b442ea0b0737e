package auth

import "fmt"

// InvalidError says which field of a new key is out of its bounds. Nothing was
// changed.
type InvalidError struct {
	Field   string // "name", "role", "accounts" or "expires_at"
	Problem string // what is wrong, the bound and what to do
}

// Error returns "field: problem".
func (e *InvalidError) Error() string { return e.Field + ": " + e.Problem }

func invalid(field, format string, args ...any) error {
	return &InvalidError{Field: field, Problem: fmt.Sprintf(format, args...)}
}
