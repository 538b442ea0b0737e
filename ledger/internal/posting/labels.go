package posting

import (
	"encoding/json"
	"fmt"
	"slices"
)

// EncodeLabels returns the labels as a JSON object, names in byte order.
func EncodeLabels(labels map[string]string) (string, error) {
	if len(labels) == 0 {
		return "{}", nil
	}
	var space [32]string // quota.MaxLabels
	names := space[:0]
	for name := range labels {
		names = append(names, name)
	}
	slices.Sort(names)
	text := make([]byte, 0, 128)
	for i, name := range names {
		text = append(text, "{,"[min(i, 1)])
		var err error
		if text, err = appendQuoted(text, name); err != nil {
			return "", err
		}
		text = append(text, ':')
		if text, err = appendQuoted(text, labels[name]); err != nil {
			return "", err
		}
	}
	return string(append(text, '}')), nil
}

func appendQuoted(text []byte, value string) ([]byte, error) {
	for i := range len(value) {
		if c := value[i]; c < ' ' || c >= 0x7f || c == '"' || c == '\\' {
			quoted, err := json.Marshal(value)
			if err != nil {
				return nil, fmt.Errorf("encode a label: %w", err)
			}
			return append(text, quoted...), nil
		}
	}
	text = append(text, '"')
	text = append(text, value...)
	return append(text, '"'), nil
}

// DecodeLabels reads what EncodeLabels wrote. No labels are nil.
func DecodeLabels(text string) (map[string]string, error) {
	var labels map[string]string
	if err := json.Unmarshal([]byte(text), &labels); err != nil {
		return nil, fmt.Errorf("decode the labels: %w", err)
	}
	if len(labels) == 0 {
		return nil, nil
	}
	return labels, nil
}
