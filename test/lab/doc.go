// Package lab prints and tests what each way of holding lets through on the
// published traces, in memory and on Redis: see reservation/holdlab.
package lab
