package estimator

import (
	"slices"
	"sync"

	"github.com/budgetd/budgetd/estimator/answer"
	"github.com/budgetd/budgetd/estimator/catalogue"
	"github.com/budgetd/budgetd/quota"
)

// extractors are the layouts whose counts are found by the embedded table.
var extractors = sync.OnceValues(func() (catalogue.UsageFile, error) { return catalogue.DecodeUsage(catalogue.EmbeddedUsage()) })

// extract adds the counts of a usage object by the table of its layout. What is a
// part of another class is taken out of it.
func (u *usageReader) extract(layout answer.Layout, usage map[string]any, field string) {
	file, err := extractors()
	if u.keep(err); err != nil {
		return
	}
	table := file.Layouts[string(layout)].Counts
	var counts [numberOfClasses]quota.Tokens
	for _, c := range table {
		class := slices.Index(classNames[:], c.Class)
		n, at := u.firstOf(usage, field, c.At)
		var sum quota.Tokens
		for _, path := range c.ElseSum {
			more, _, _ := u.countAt(usage, field, path)
			sum += more // each at most 2^53-1
		}
		if at == "" {
			n, at = sum, field+"."+c.At[0].Key
		}
		counts[class] = n
		if c.PartOf != "" {
			whole := slices.IndexFunc(table, func(other catalogue.Count) bool { return other.Class == c.PartOf })
			of := slices.Index(classNames[:], c.PartOf)
			counts[of] = u.less(counts[of], n, at, table[whole].At[0].Key)
		}
	}
	all := u.use.Tokens.List()
	for class, n := range counts {
		all[class] += n
	}
	u.use.Tokens = TokenClassesOf(all)
}

// firstOf reads the first of the paths that is there, and says where it is; ""
// when none is.
func (u *usageReader) firstOf(usage map[string]any, field string, paths []catalogue.UsagePath) (n quota.Tokens, at string) {
	for _, path := range paths {
		if n, at, stated := u.countAt(usage, field, path); stated {
			return n, at
		}
	}
	return 0, ""
}

// countAt reads the count that a path leads to, and says whether it is stated.
func (u *usageReader) countAt(usage map[string]any, field string, path catalogue.UsagePath) (n quota.Tokens, where string, stated bool) {
	if path.Object == "" {
		n, stated = u.maybe(usage, field, path.Key)
		return n, field + "." + path.Key, stated
	}
	if !path.List {
		inner, innerField := u.object(usage, field, path.Object)
		n, stated = u.maybe(inner, innerField, path.Key)
		return n, innerField + "." + path.Key, stated
	}
	listField := field + "." + path.Object
	items, err := listAt(usage, field, path.Object)
	u.keep(err)
	if len(items) > maxItems {
		u.keep(invalid(listField, "has more than %d entries", maxItems))
		return 0, listField, false
	}
	for i, item := range items {
		itemField := at(listField, i)
		inner, err := asObject(item, itemField)
		u.keep(err)
		if value, _ := inner[path.Name].(string); value != path.Value {
			continue
		}
		more, ok := u.maybe(inner, itemField, path.Key)
		n, stated = min(n+more, quota.Tokens(quota.MaxAmount)), stated || ok
	}
	return n, listField, stated
}
