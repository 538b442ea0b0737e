package alerts_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
)

func receive(secret string) http.HandlerFunc {
	verifier, err := standardwebhooks.NewWebhook(secret) // "whsec_..."
	if err != nil {
		panic(err)
	}
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 64<<10))
		if err != nil || verifier.Verify(body, r.Header) != nil {
			http.Error(w, "not signed by budgetd", http.StatusUnauthorized)
			return
		}
		var alert struct {
			Type string
			Data struct {
				Account, Limit string
				Percent        int
			}
		}
		if json.Unmarshal(body, &alert) == nil && alert.Type == "quota.alert" {
			fmt.Printf("%s has used %d%% of %s\n", alert.Data.Account, alert.Data.Percent, alert.Data.Limit)
		}
		w.WriteHeader(http.StatusNoContent)
	}
}
