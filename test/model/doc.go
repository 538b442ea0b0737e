// Package model breaks the protocol of a reservation on purpose: real brokers on
// one engine and one ledger, where any message can be lost, late or doubled,
// brokers die, the engine loses everything, the ledger goes away and the month
// rolls. Histories are random, shrink, and print their seed.
package model
