package pgledger

import _ "embed" // the statements are files

// Each statement says in its file what it does.
var (
	//go:embed sql/insert_closings.sql
	insertClosings string
	//go:embed sql/replace_closings.sql
	replaceClosings string
	//go:embed sql/select_charges.sql
	selectCharges string
	//go:embed sql/select_winners.sql
	selectWinners string
	//go:embed sql/insert_entries.sql
	insertEntries string
	//go:embed sql/insert_label_sets.sql
	insertLabelSets string
	//go:embed sql/insert_deltas.sql
	insertDeltas string
	//go:embed sql/roll_deltas.sql
	rollDeltas string
	//go:embed sql/upsert_usage.sql
	upsertUsage string
	//go:embed sql/select_usage.sql
	selectUsage string
	//go:embed sql/select_account_usage.sql
	selectAccountUsage string
	//go:embed sql/select_period_usage.sql
	selectPeriodUsage string
	//go:embed sql/select_mismatches.sql
	selectMismatches string
	//go:embed sql/insert_changes.sql
	insertChanges string
	//go:embed sql/select_changes.sql
	selectChanges string
	//go:embed sql/select_snapshot.sql
	selectSnapshot string
	//go:embed sql/turn_pruned.sql
	turnPruned string
	//go:embed sql/prune_changes.sql
	pruneChanges string
	//go:embed sql/insert_adjustment.sql
	insertAdjustment string
	//go:embed sql/select_adjustment.sql
	selectAdjustment string
	//go:embed sql/select_adjustments.sql
	selectAdjustments string
	//go:embed sql/insert_correction.sql
	insertCorrection string
	//go:embed sql/select_correction.sql
	selectCorrection string
	//go:embed sql/insert_corrected_entries.sql
	insertCorrectedEntries string
	//go:embed sql/lock_closings.sql
	lockClosings string
	//go:embed sql/scan_closings.sql
	scanClosings string
	//go:embed sql/scan_account_closings.sql
	scanAccountClosings string
	//go:embed sql/select_closings.sql
	selectClosings string
	//go:embed sql/select_months.sql
	selectMonths string
	//go:embed sql/keep_months.sql
	keepMonths string
	//go:embed sql/select_retiring.sql
	selectRetiring string
	//go:embed sql/carry_month.sql
	carryMonth string
)

// upsertClosings writes closings by rank.
var upsertClosings = insertClosings + replaceClosings
