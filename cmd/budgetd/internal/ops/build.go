package ops

import (
	"runtime"
	"runtime/debug"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// Build is what this binary was built from.
type Build struct {
	Version  string // of the module, such as "v1.2.3"; "devel" outside a release
	Revision string // of the source, 12 characters; "unknown" without version control
	Go       string // such as "go1.26.0"
}

// ThisBuild reads it from the binary.
func ThisBuild() Build {
	build := Build{Version: "devel", Revision: "unknown", Go: runtime.Version()}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return build
	}
	if v := info.Main.Version; v != "" && v != "(devel)" {
		build.Version = v
	}
	dirty := false
	for _, setting := range info.Settings {
		switch setting.Key {
		case "vcs.revision":
			build.Revision = setting.Value[:min(12, len(setting.Value))]
		case "vcs.modified":
			dirty = setting.Value == "true"
		}
	}
	if dirty {
		build.Revision += "-dirty"
	}
	return build
}

// RegisterProcess adds the metrics of the process, of the Go runtime and of the
// build.
func RegisterProcess(registerer prometheus.Registerer) error {
	build := ThisBuild()
	info := prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "budgetd_ops_build_info",
		Help:        "Always 1; the labels say what runs.",
		ConstLabels: prometheus.Labels{"version": build.Version, "revision": build.Revision, "goversion": build.Go},
	})
	info.Set(1)
	for _, collector := range []prometheus.Collector{
		info,
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	} {
		if err := registerer.Register(collector); err != nil {
			return err
		}
	}
	return nil
}
