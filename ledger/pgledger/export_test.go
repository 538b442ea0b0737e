package pgledger

// PruneChanges lets tests prune without the rest of Maintain.
var PruneChanges = (*Ledger).pruneChanges
