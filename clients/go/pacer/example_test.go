package pacer_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/budgetd/budgetd/clients/go/pacer"
	"github.com/budgetd/budgetd/clients/go/retry"
)

// A batch worker that paces itself: it knows the limit, and tries again where
// others use it too.
func Example() {
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(w, r.Body)
	}))
	defer api.Close()

	pace, err := pacer.New(100, 2) // 100 a second, a bucket of 2
	if err != nil {
		fmt.Println(err)
		return
	}
	client := &http.Client{Transport: &pacer.Transport{Pacer: pace, Base: &retry.Transport{}}}
	began := time.Now()
	for _, item := range []string{"one", "two", "three", "four"} {
		response, err := client.Post(api.URL, "text/plain", strings.NewReader(item))
		if err != nil {
			fmt.Println(err)
			return
		}
		answer, err := io.ReadAll(response.Body)
		response.Body.Close()
		fmt.Println(string(answer), err)
	}
	// Two left at once, and the others a 95th of a second apart.
	fmt.Println(time.Since(began) > 20*time.Second/1000)
	// Output:
	// one <nil>
	// two <nil>
	// three <nil>
	// four <nil>
	// true
}
