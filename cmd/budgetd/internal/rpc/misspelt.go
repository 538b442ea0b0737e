package rpc

import (
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"mime"
	"net/http"
	"strings"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/budgetd/budgetd/internal/spelling"
	budgetv1 "github.com/budgetd/budgetd/proto/budget/v1"
)

var (
	budgetMethods = budgetv1.File_budget_v1_service_proto.Services().ByName("BudgetService").Methods()
	adminMethods  = budgetv1.File_budget_v1_admin_proto.Services().ByName("AdminService").Methods()
)

// explained answers what Connect's handlers answer without a word: a method that is
// none, with the one that may have been meant, and a body of a type that none of the
// protocols has, as curl sends it unless told. Nothing of a body is read.
func explained(path string, methods protoreflect.MethodDescriptors, errorWriter *connect.ErrorWriter, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := strings.TrimPrefix(r.URL.Path, path)
		if methods.ByName(protoreflect.Name(name)) != nil {
			if r.Method == http.MethodPost && !isSupported(r.Header.Get("Content-Type")) {
				w.Header().Set("Accept-Post", "application/json, application/proto")
				writePlain(w, http.StatusUnsupportedMediaType, connect.CodeInvalidArgument, "the body has no content type that is taken here: send the header Content-Type: application/json")
				return
			}
			next.ServeHTTP(w, r)
			return
		}
		text := fmt.Sprintf("there is no method %.100q here", name)
		if near := spelling.Nearest(name, namesOf(methods), 3); near != "" {
			text += fmt.Sprintf(": did you mean %s%s?", path, near)
		}
		if strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
			_ = errorWriter.Write(w, r, connect.NewError(connect.CodeUnimplemented, errors.New(text))) // the caller may be gone
			return
		}
		writePlain(w, http.StatusNotFound, connect.CodeUnimplemented, text)
	})
}

func namesOf(methods protoreflect.MethodDescriptors) iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := range methods.Len() {
			if !yield(string(methods.Get(i).Name())) {
				return
			}
		}
	}
}

// isSupported says whether one of the protocols has bodies of a type.
func isSupported(contentType string) bool {
	base, parameters, err := mime.ParseMediaType(contentType)
	if err != nil {
		return false
	}
	switch base {
	case "application/json", "application/proto":
		charset, stated := parameters["charset"]
		return len(parameters) == 0 || len(parameters) == 1 && stated && base == "application/json" && strings.EqualFold(charset, "utf-8")
	}
	return strings.HasPrefix(base, "application/grpc") || strings.HasPrefix(base, "application/connect+")
}

// writePlain writes an error in Connect's form, with a status of its own.
func writePlain(w http.ResponseWriter, status int, code connect.Code, message string) {
	body, err := json.Marshal(map[string]string{"code": code.String(), "message": message})
	if err != nil {
		panic("rpc: a map of texts is always JSON: " + err.Error())
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(body) // the caller may be gone
}
