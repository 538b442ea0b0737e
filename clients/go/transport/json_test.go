package transport

import (
	"encoding/json"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

var jsonSeeds = []string{
	`{}`, ` { } `, `{"a":1}`, `{"a":[],"b":{},"c":[{}],"d":null,"e":true,"f":false}`,
	`{"a":[0,-0,1.5e3,1E-7,12345678901234567890]}`, `{"a":1e999}`, `{"a":-1e999}`,
	`{"a":"x\n\"\\\u00e9\ud83d\ude00\ud83d"}`, "{\"a\xff\":\"\xff\xfe\"}", `{"a":1,"a":{"b":2}}`, `{"a":{"b":1},"a":{"c":2}}`,
	" {\r\n\t\"a\" : [ 1 , 2 ] ,\"\" : \"\" } ", `[1]`, `null`, ``, `{"a":1}x`, `{"a":"`, `{"a\"b":"\\"}`, "{\"a\":\"\x01\"}", "\ufeff{}",
}

// FuzzReadObject: a body is what encoding/json makes of it, and no body has more
// values than were counted.
func FuzzReadObject(f *testing.F) {
	for _, seed := range jsonSeeds {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		values, depth := weigh(raw)
		if depth > maxDepth {
			return
		}
		var object map[string]any
		err := json.Unmarshal(raw, &object)
		got, gotErr := readObject(raw)
		if (err == nil && object != nil) != (gotErr == nil) {
			t.Fatalf("%q: %v, encoding/json %v", raw, gotErr, err)
		}
		if gotErr != nil {
			return
		}
		want, err := structpb.NewStruct(object)
		if err != nil {
			t.Fatal(err)
		}
		if !proto.Equal(got, want) {
			t.Fatalf("%q is %v, want %v", raw, got, want)
		}
		if n := countValues(structpb.NewStructValue(got)); n > values {
			t.Fatalf("%q has %d values, %d were counted", raw, n, values)
		}
	})
}

func countValues(v *structpb.Value) int {
	n := 1
	for _, inner := range v.GetListValue().GetValues() {
		n += countValues(inner)
	}
	for _, inner := range v.GetStructValue().GetFields() {
		n += countValues(inner)
	}
	return n
}

// TestBounds: what real requests have passes, and the bound that does not hold is said.
func TestBounds(t *testing.T) {
	numbers := func(n int) string { return strings.Repeat("0,", n-1) + "0" }
	for _, example := range []struct{ name, body, want string }{
		{"a picture", `{"messages":[{"image":"` + strings.Repeat("A,[{", 4<<20) + `"}]}`, ""},
		{"embeddings", `{"input":[` + numbers(300_000) + `]}`, ""},
		{"a long history", `{"messages":[` + strings.Repeat(`{"role":"tool","content":[{"type":"text","text":"x"}],"tool_call_id":"y"},`, 30_000) + `{}]}`, ""},
		{"a deep schema", `{"tools":` + strings.Repeat(`{"properties":`, 200) + `1` + strings.Repeat("}", 200) + `}`, ""},
		{"many numbers", `{"x":[` + numbers(1<<20) + `]}`, "the body has more than 400000 JSON values: send less in one request"},
		{"many objects", `{"x":[` + strings.Repeat("{},", 1<<20) + `{}]}`, "the body has more than 400000 JSON values: send less in one request"},
		{"too deep", strings.Repeat(`{"a":`, 600) + `1` + strings.Repeat("}", 600), "the body nests more than 500 deep"},
		{"not closed", strings.Repeat("[", 1<<20), "the body has more than 400000 JSON values: send less in one request"},
	} {
		_, err := checkBounds([]byte(example.body))
		if err == nil {
			_, err = readRequest(&Endpoint{Provider: "openai"}, "", []byte(example.body))
		}
		if got := ""; err != nil {
			if got = err.Error(); got != example.want {
				t.Errorf("%s: %q, want %q", example.name, got, example.want)
			}
		} else if example.want != "" {
			t.Errorf("%s passes", example.name)
		}
	}
}
