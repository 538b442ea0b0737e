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
	//go:embed sql/upsert_usage.sql
	upsertUsage string
	//go:embed sql/select_usage.sql
	selectUsage string
	//go:embed sql/select_account_usage.sql
	selectAccountUsage string
	//go:embed sql/select_closing.sql
	selectClosing string
	//go:embed sql/select_mismatches.sql
	selectMismatches string
	//go:embed sql/select_months.sql
	selectMonths string
)

// upsertClosings writes closings by rank.
var upsertClosings = insertClosings + replaceClosings
