package corpus

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// identifiers are names as programs have them, most of them not words.
func identifiers(r *rand.Rand, b *strings.Builder) {
	parts := make([]string, 1+r.IntN(4))
	for i := range parts {
		parts[i] = word(r)
		if r.IntN(4) == 0 { // an abbreviation
			parts[i] = parts[i][:min(len(parts[i]), 3)]
		}
	}
	name := ""
	switch r.IntN(4) {
	case 0:
		name = strings.Join(parts, "_")
	case 1:
		name = strings.ToUpper(strings.Join(parts, "_"))
	case 2:
		name = strings.Join(parts, "-")
	default:
		for i, part := range parts {
			if i > 0 {
				part = strings.ToUpper(part[:1]) + part[1:]
			}
			name += part
		}
	}
	b.WriteString(name)
	b.WriteString(pick(r, []string{" ", ".", "(", ")\n", ", ", " = ", "\n", "->", "::", ";\n"}))
}

func jsonCompact(r *rand.Rand, b *strings.Builder) {
	fmt.Fprintf(b, `{"id":%d,"name":"%s %s","tags":["%s","%s"],"active":%t,"score":%.4f,"meta":{"created_at":"%s","owner":null}},`,
		r.Uint32(), word(r), word(r), word(r), word(r), r.IntN(2) == 0, r.Float64(), instant(r).Format(time.RFC3339))
}

func jsonIndented(r *rand.Rand, b *strings.Builder) {
	fmt.Fprintf(b, "  {\n    \"type\": \"function\",\n    \"function\": {\n      \"name\": \"%s_%s\",\n      \"description\": \"%s\",\n"+
		"      \"parameters\": {\n        \"type\": \"object\",\n        \"required\": [\"%s\"],\n        \"maximum\": %d\n      }\n    }\n  },\n",
		word(r), word(r), pick(r, words)+" "+word(r)+" "+word(r), word(r), r.IntN(10_000))
}

func markdown(r *rand.Rand, b *strings.Builder) {
	line := func() string { return word(r) + " " + word(r) + " " + word(r) }
	switch r.IntN(6) {
	case 0:
		fmt.Fprintf(b, "%s %s\n\n", strings.Repeat("#", 1+r.IntN(4)), line())
	case 1:
		fmt.Fprintf(b, "- **%s**: %s (see [%s](https://example.com/%s/%s#%s))\n- [ ] `%s`\n\n", word(r), line(), word(r), word(r), word(r), word(r), word(r))
	case 2:
		fmt.Fprintf(b, "| %s | %s |\n| :--- | ---: |\n| %s | %d |\n\n", word(r), word(r), line(), r.IntN(100_000))
	case 3:
		fmt.Fprintf(b, "```sh\n%s --%s=%d | %s > %s.txt\n```\n\n", word(r), word(r), r.IntN(100), word(r), word(r))
	case 4:
		fmt.Fprintf(b, "> %s, *%s* and ~~%s~~.[^%d]\n\n", line(), word(r), word(r), r.IntN(20))
	default:
		fmt.Fprintf(b, "%s. %s.\n\n", line(), line())
	}
}

func logLine(r *rand.Rand, b *strings.Builder) {
	switch r.IntN(3) {
	case 0:
		fmt.Fprintf(b, "%s %-5s [%s-%d] c.e.%s.%s: %s %s took %dms trace_id=%016x\n", instant(r).Format("2006-01-02T15:04:05.000Z"),
			pick(r, []string{"INFO", "WARN", "ERROR", "DEBUG"}), word(r), r.IntN(64), word(r), word(r), word(r), word(r), r.IntN(9000), r.Uint64())
	case 1:
		fmt.Fprintf(b, "%d.%d.%d.%d - - [%s] \"GET /%s/%s?q=%s&page=%d HTTP/1.1\" %d %d \"https://example.com/%s\" \"Mozilla/5.0 (X11; Linux x86_64)\"\n",
			r.IntN(256), r.IntN(256), r.IntN(256), r.IntN(256), instant(r).Format("02/Jan/2006:15:04:05 -0700"), word(r), word(r), word(r), r.IntN(100),
			pick(r, []int{200, 204, 301, 404, 500}), r.IntN(100_000), word(r))
	default:
		fmt.Fprintf(b, "\tat com.example.%s.%s(%s.java:%d) ~[%s-%d.%d.%d.jar:?]\n", word(r), word(r), word(r), r.IntN(2000), word(r), r.IntN(9), r.IntN(20), r.IntN(20))
	}
}

func csvRow(r *rand.Rand, b *strings.Builder) {
	fmt.Fprintf(b, "%s,%d,%.2f,%.6f,%d%%,$%d.%02d,%+d\n", instant(r).Format("2006-01-02 15:04"), r.IntN(1_000_000), r.Float64()*1e5, r.NormFloat64(), r.IntN(101), r.IntN(10_000), r.IntN(100), r.IntN(2000)-1000)
}

func tableRow(r *rand.Rand, b *strings.Builder) {
	fmt.Fprintf(b, "| %8d | %-12s | %10.3f | %5d.%d |\n", r.IntN(100_000_000), word(r), r.Float64()*1e4, r.IntN(1000), r.IntN(10))
}

func digits(r *rand.Rand, b *strings.Builder) {
	for range 1 + r.IntN(40) {
		b.WriteByte(byte('0' + r.IntN(10)))
	}
	b.WriteString(pick(r, []string{" ", "\n", "", ", ", "٣٤", "²", "½", "一二", "Ⅻ"}))
}

func indented(r *rand.Rand, b *strings.Builder) {
	b.WriteString(strings.Repeat(pick(r, []string{"\t", "  ", "    "}), r.IntN(12)))
	b.WriteString(pick(r, []string{"end", "}", "pass", word(r), "return " + word(r)}))
	b.WriteString(strings.Repeat(pick(r, []string{"\n", "\r\n", " \n"}), 1+r.IntN(3)))
}

func blanks(r *rand.Rand, b *strings.Builder) {
	b.WriteString(strings.Repeat(pick(r, []string{" ", "\n", "\t", "\r\n", "\u00a0", "\u3000", "\u2003", "\v", "\u2028"}), 1+r.IntN(60)))
}

func columns(r *rand.Rand, b *strings.Builder) {
	fmt.Fprintf(b, "%-*s%*s\n", 10+r.IntN(70), word(r), 10+r.IntN(70), word(r))
}

func instant(r *rand.Rand) time.Time { return time.Unix(1_500_000_000+r.Int64N(300_000_000), 0).UTC() }
