package simulate

import (
	"bytes"
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// Chart is a drawing of figures: lines over time, or bars side by side.
type Chart struct {
	Title string
	X, Y  string  // what the axes show
	Limit float64 // a dashed line at what the limit says; 0 for none
	Lines []Line
	Bars  []Bar
}

// Line is one value a second, drawn as steps from second 0 on.
type Line struct {
	Name     string
	ASeconds []float64
}

// Bar is one value with its name.
type Bar struct {
	Name  string
	Value float64
}

const (
	chartWidth  = 22 * vg.Centimeter
	chartHeight = 9 * vg.Centimeter
	margin      = vg.Centimeter / 4
)

// SVG draws the chart. The same figures give the same bytes.
func (c *Chart) SVG() ([]byte, error) {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = c.Title, c.X, c.Y
	p.Legend.Top, p.Legend.XOffs, p.Legend.Padding = true, -margin, margin
	for _, text := range []*draw.TextStyle{
		&p.Title.TextStyle, &p.X.Label.TextStyle, &p.Y.Label.TextStyle, &p.X.Tick.Label, &p.Y.Tick.Label, &p.Legend.TextStyle,
	} {
		text.Font.Variant = "Sans"
	}
	p.Add(plotter.NewGrid())
	for i, line := range c.Lines {
		points := make(plotter.XYs, 0, len(line.ASeconds)+1)
		for second, value := range line.ASeconds {
			points = append(points, plotter.XY{X: float64(second), Y: value})
		}
		points = append(points, plotter.XY{X: float64(len(line.ASeconds)), Y: line.ASeconds[len(line.ASeconds)-1]})
		drawn, err := plotter.NewLine(points)
		if err != nil {
			return nil, err
		}
		drawn.StepStyle, drawn.Color, drawn.Width = plotter.PostStep, plotutil.Color(i), vg.Points(1.5)
		p.Add(drawn)
		p.Legend.Add(line.Name, drawn)
	}
	if len(c.Bars) > 0 {
		values, names := make(plotter.Values, len(c.Bars)), make([]string, len(c.Bars))
		for i, bar := range c.Bars {
			values[i], names[i] = bar.Value, bar.Name
		}
		drawn, err := plotter.NewBarChart(values, chartWidth/vg.Length(2*len(c.Bars)))
		if err != nil {
			return nil, err
		}
		drawn.Color, drawn.LineStyle.Width = plotutil.Color(2), 0
		p.Add(drawn)
		p.NominalX(names...)
		p.X.Min, p.X.Max = -0.6, float64(len(names))-0.4
	}
	if c.Limit > 0 {
		limit := plotter.NewFunction(func(float64) float64 { return c.Limit })
		limit.Dashes, limit.Color = []vg.Length{vg.Points(4), vg.Points(3)}, color.Black
		p.Add(limit)
		p.Legend.Add("limit", limit)
	}
	p.Y.Min = 0
	p.Y.Max *= 1.4 // room for the legend
	canvas := vgsvg.New(chartWidth, chartHeight)
	p.Draw(draw.Crop(draw.New(canvas), margin, -margin, margin, -margin))
	var svg bytes.Buffer
	_, err := canvas.WriteTo(&svg)
	return svg.Bytes(), err
}
