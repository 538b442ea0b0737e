// Package alerts raises an alert when a quota's use reaches one of its
// thresholds (quota.Limit.AlertAt), once a period whatever the number of callers
// and brokers, and tells a webhook of it.
//
//   - [Watcher] hears of usage rows as the ledger changes them, and of which
//     thresholds they have reached. What it hears is a level and not an edge:
//     hearing of a row again, late or from another node, makes good what was
//     missed.
//   - [Store] keeps the alerts in the table of migration 7, in PostgreSQL or
//     SQLite alike. Its primary key raises an alert once; the same row is the
//     outbox of its delivery.
//   - [Deliverer] posts what waits in the outbox, signed by the Standard Webhooks
//     convention (https://www.standardwebhooks.com), at least once.
package alerts
