package quota

import "time"

// Alert is a threshold of a quota that was reached: raised once a period.
type Alert struct {
	Percent  int // of the quota's amount, as Limit.AlertAt states it
	RaisedAt time.Time
}
