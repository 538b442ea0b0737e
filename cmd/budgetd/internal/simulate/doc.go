// Package simulate shows what limits let through: algorithms, fleets, races,
// fair shares and ways of holding, on traffic that is made from a seed and on a
// clock that only moves when the next event is due.
//
// Whatever decides is the product's own engine, reservation/memstore, with that
// clock passed in. Only what a scenario shows to be wrong (counting before
// asking, reading and then writing, each server for itself) is code of the
// scenario. docs/simulate.md says for each scenario what is modelled and what is
// not.
package simulate
