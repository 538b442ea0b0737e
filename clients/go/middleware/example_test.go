package middleware_test

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"

	budget "github.com/budgetd/budgetd/clients/go"
	"github.com/budgetd/budgetd/clients/go/middleware"
	"github.com/budgetd/budgetd/test/broker"
)

const reports = `
plans:
  reports:
    limits:
      - {name: reports, meter: in_flight, max: 2, match: {route: POST /reports}}
      - {name: pages, meter: pages, rate: 100/h, per: [client]}
accounts:
  shop: {plan: reports}
`

// A slow endpoint that makes reports. The plan lets it run twice at a time, and
// each client take 100 pages an hour:
//
//	limits:
//	  - {name: reports, meter: in_flight, max: 2, match: {route: POST /reports}}
//	  - {name: pages, meter: pages, rate: 100/h, per: [client]}
func Example() {
	url, key, stop := broker.ForExample(reports, "shop")
	defer stop()

	client, err := budget.New(url, key)
	if err != nil {
		log.Fatal(err)
	}
	guard, err := middleware.New(client,
		middleware.WithTrustedProxies("10.0.0.0/8"),
		middleware.WithRequest(func(*http.Request) budget.Request {
			return budget.Request{Amounts: map[string]int64{"pages": 40}} // the most that a report has
		}),
	)
	if err != nil {
		log.Fatal(err)
	}
	api := http.NewServeMux()
	api.Handle("POST /reports", guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		pages := makeReport(w)
		middleware.SetUsage(r.Context(), budget.Amounts(map[string]int64{"pages": pages}))
	})))
	server := httptest.NewServer(api)
	defer server.Close()

	for range 3 {
		// This caller is known by its address.
		response, err := http.Post(server.URL+"/reports", "text/plain", nil)
		if err != nil {
			log.Fatal(err)
		}
		body, err := io.ReadAll(response.Body)
		if err != nil {
			log.Fatal(err)
		}
		response.Body.Close()
		fmt.Println(response.StatusCode, response.Header.Get("Budget-Limited-By"), string(body))
	}
	// Output:
	// 200  35 pages
	// 200  35 pages
	// 429 pages {"error":"too many requests","limit":"pages"}
}

func makeReport(w io.Writer) (pages int64) {
	fmt.Fprint(w, "35 pages")
	return 35
}
