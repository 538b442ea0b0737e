package rpc

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"connectrpc.com/connect"
)

// What leads to no method, or has a body that nobody takes, is told what was meant.
func TestMisspeltCalls(t *testing.T) {
	const path = "/budget.v1.BudgetService/"
	passed := false
	next := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { passed = true })
	handler := explained(path, budgetMethods, connect.NewErrorWriter(), next)
	for _, c := range []struct {
		method, name, contentType string
		status                    int // 0: it passes
		want                      string
	}{
		{"POST", "Reserve", "application/json", 0, ""},
		{"POST", "Reserve", "application/json; charset=utf-8", 0, ""},
		{"POST", "Reserve", "application/proto", 0, ""},
		{"POST", "Reserve", "application/grpc+proto", 0, ""},
		{"POST", "Reserve", "application/connect+json", 0, ""},
		{"GET", "GetQuota", "", 0, ""},
		{"POST", "Reserve", "", 415, "send the header Content-Type: application/json"},
		{"POST", "Reserve", "application/x-www-form-urlencoded", 415, `"code":"invalid_argument"`},
		{"POST", "Reserve", "application/json; charset=latin1", 415, "application/json"},
		{"POST", "reserve", "application/json", 404, "did you mean /budget.v1.BudgetService/Reserve?"},
		{"POST", "Refnud", "", 404, "did you mean /budget.v1.BudgetService/Refund?"},
		{"POST", "Reserve/", "application/json", 404, "did you mean /budget.v1.BudgetService/Reserve?"},
		{"POST", "Whatever", "application/json", 404, `{"code":"unimplemented","message":"there is no method \"Whatever\" here"}`},
		{"GET", "", "", 404, "there is no method"},
		{"POST", strings.Repeat("x", 1000), "", 404, "there is no method"},
	} {
		passed = false
		r := httptest.NewRequest(c.method, path+c.name, strings.NewReader("{}"))
		if c.contentType != "" {
			r.Header.Set("Content-Type", c.contentType)
		}
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		if passed != (c.status == 0) || !passed && (w.Code != c.status || !strings.Contains(w.Body.String(), c.want) || w.Body.Len() > 300) {
			t.Errorf("%s %.40s %q: passed %v, %d %s", c.method, c.name, c.contentType, passed, w.Code, w.Body)
		}
	}
	r := httptest.NewRequest(http.MethodPost, path+"Reserv", nil)
	r.Header.Set("Content-Type", "application/grpc+proto")
	w := httptest.NewRecorder()
	handler.ServeHTTP(w, r)
	if got := w.Result().Trailer; got.Get("Grpc-Status") != "12" || !strings.Contains(got.Get("Grpc-Message"), "Reserve") {
		t.Errorf("gRPC: %d %v %v", w.Code, w.Header(), got)
	}
}
