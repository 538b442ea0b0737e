// Package spelling finds the known name that somebody may have meant by one that is
// not known.
package spelling

import (
	"iter"
	"strings"
)

// MaxBytes bounds the names that are compared: of a longer one nothing is near.
const MaxBytes = 128

// Nearest returns the name that the fewest edits make out of the given one, the
// first of several, "" if it takes more than most edits or as many as the given
// name has characters. An edit inserts, removes or changes one byte; case is not
// looked at.
func Nearest(given string, names iter.Seq[string], most int) string {
	most = min(most, len(given)-1)
	best := ""
	lower := strings.ToLower(given)
	for name := range names {
		if d := edits(lower, strings.ToLower(name), most+1); d <= most {
			best, most = name, d-1
		}
	}
	return best
}

// edits is the Levenshtein distance, or enough where it is at least that.
func edits(a, b string, enough int) int {
	if enough <= 0 || len(a) > MaxBytes || len(b) > MaxBytes || len(a)-len(b) >= enough || len(b)-len(a) >= enough {
		return enough
	}
	var space [MaxBytes + 1]int
	row := space[:len(b)+1]
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diagonal, least := row[0], i
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := diagonal
			if a[i-1] != b[j-1] {
				cost = 1 + min(diagonal, row[j], row[j-1])
			}
			diagonal, row[j] = row[j], cost
			least = min(least, cost)
		}
		if least >= enough {
			return enough
		}
	}
	return row[len(b)]
}
