package quota

// PeriodUnit is the calendar span over which a quota counts.
type PeriodUnit string

// The calendar spans of a quota.
const (
	PeriodDay   PeriodUnit = "day"
	PeriodWeek  PeriodUnit = "week"
	PeriodMonth PeriodUnit = "month"
	PeriodYear  PeriodUnit = "year"
)
