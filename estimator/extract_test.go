package estimator

import (
	"maps"
	"slices"
	"testing"

	"github.com/budgetd/budgetd/estimator/answer"
)

// Each layout of the table reads each of its paths into the class that the table
// says, and takes parts out of their whole.
func TestExtractorsReadEveryPath(t *testing.T) {
	file, err := extractors()
	if err != nil {
		t.Fatal(err)
	}
	if got, want := slices.Sorted(maps.Keys(file.Layouts)), []string{string(answer.Anthropic), string(answer.Bedrock)}; !slices.Equal(got, want) {
		t.Fatalf("the table has the layouts %q, %q are read by it", got, want)
	}
	for layout, table := range file.Layouts {
		whole := map[string]string{}
		for _, c := range table.Counts {
			whole[c.Class] = c.At[0].Key
		}
		for _, c := range table.Counts {
			for _, path := range c.At {
				usage := map[string]any{}
				if c.PartOf != "" {
					usage[whole[c.PartOf]] = 100.0
				}
				switch {
				case path.List:
					usage[path.Object] = []any{
						map[string]any{path.Name: path.Value, path.Key: 3.0}, map[string]any{path.Name: "other", path.Key: 50.0}, map[string]any{path.Name: path.Value, path.Key: 4.0},
					}
				case path.Object != "":
					usage[path.Object] = map[string]any{path.Key: 7.0}
				default:
					usage[path.Key] = 7.0
				}
				use, err := NormalizeUsage(layout, usage)
				if err != nil {
					t.Errorf("%s %+v: %v", layout, path, err)
					continue
				}
				counts := use.Tokens.List()
				if got := counts[slices.Index(classNames[:], c.Class)]; got != 7 {
					t.Errorf("%s %+v: %d of class %s, want 7", layout, path, got, c.Class)
				}
				if c.PartOf != "" && counts[slices.Index(classNames[:], c.PartOf)] != 93 {
					t.Errorf("%s %+v: the whole keeps %+v, want 93", layout, path, use.Tokens)
				}
			}
		}
	}
}
