// Package quota holds the words that every other room uses: meters and
// amounts, limits, plans, accounts, pools, periods, and which limits a call
// meets. It does no I/O and imports no other room.
//
// Amounts are 64-bit integers in the unit of their meter. Tokens and money
// have types of their own, arithmetic is checked, and nothing is rounded here
// except where a docstring says so.
package quota
