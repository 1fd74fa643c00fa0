//! The curve of a sweep as SVG: CPU and lateness over the number of calls.

use anyhow::anyhow;
use plotters::prelude::*;

use super::sweep::Sweep;

const SIZE: (u32, u32) = (880, 420);
const CPU: RGBColor = RGBColor(0x1f, 0x77, 0xb4);
const LATE: RGBColor = RGBColor(0xd6, 0x27, 0x28);
/// Above this a frame is late.
const LATE_MS: f64 = 10.0;

impl Sweep {
    /// Draws the curve. The picture has its own light ground, so that it reads on a dark page too.
    ///
    /// # Errors
    /// There is nothing to draw, or drawing failed.
    pub fn to_svg(&self) -> anyhow::Result<String> {
        let mut svg = String::new();
        self.draw(SVGBackend::with_string(&mut svg, SIZE)).map_err(|error| anyhow!("drawing the curve: {error}"))?;
        Ok(svg)
    }

    fn draw(&self, backend: SVGBackend<'_>) -> Result<(), Box<dyn std::error::Error + '_>> {
        let most = self.points.last().ok_or("no points")?.sessions as f64 * 1.05;
        let area = backend.into_drawing_area();
        area.fill(&WHITE)?;
        let title = format!("bench {}: {} calls are frame-stable on one core", self.bench, self.sessions);
        let mut chart = ChartBuilder::on(&area)
            .caption(title, ("sans-serif", 18))
            .margin(12)
            .x_label_area_size(40)
            .y_label_area_size(52)
            .right_y_label_area_size(52)
            .build_cartesian_2d(0.0..most, 0.0..100.0)?
            .set_secondary_coord(0.0..most, 0.0..2.0 * LATE_MS);
        chart
            .configure_mesh()
            .disable_x_mesh()
            .x_desc("calls")
            .y_desc(format!("CPU of the {}, % of a core", self.subject()))
            .x_label_formatter(&|x| format!("{x:.0}"))
            .draw()?;
        chart.configure_secondary_axes().y_desc("p99 lateness, ms").draw()?;
        let cpu = self.points.iter().map(|p| (p.sessions as f64, p.cpu_percent.min(100.0)));
        chart
            .draw_series(LineSeries::new(cpu, CPU.stroke_width(2)).point_size(3))?
            .label("CPU")
            .legend(|(x, y)| PathElement::new([(x, y), (x + 16, y)], CPU.stroke_width(2)));
        let late = self.points.iter().map(|p| (p.sessions as f64, (p.lateness_us.p99 / 1000.0).min(2.0 * LATE_MS)));
        chart
            .draw_secondary_series(LineSeries::new(late, LATE.stroke_width(2)).point_size(3))?
            .label("p99 lateness")
            .legend(|(x, y)| PathElement::new([(x, y), (x + 16, y)], LATE.stroke_width(2)));
        chart.draw_secondary_series(LineSeries::new([(0.0, LATE_MS), (most, LATE_MS)], LATE.stroke_width(1)))?;
        chart.configure_series_labels().position(SeriesLabelPosition::UpperLeft).background_style(WHITE).draw()?;
        area.present()?;
        Ok(())
    }
}
