#include "launcher/report/png_canvas.h"

#include <array>
#include <memory>
#include <numbers>

#include "launcher/report/cairo_abi.h"
#include "runtime/base/dyn_lib.h"

namespace hvd::launch {
namespace {

constexpr const char* kLibrary = "libcairo.so.2";
// Pixels to a point: screens of today are fine, and labels of 11 points stay sharp.
constexpr double kScale = 2;

Result<cairo::Functions> load_cairo() {
  // It stays: what it loads itself keeps tables until the process ends.
  auto library = DynLib::open(kLibrary, DynLib::Scope::kStays);
  if (!library.ok()) {
    return Error(Code::kNotFound, "PNG needs cairo (" + library.error().message() +
                                      "); install it, as in apt-get install libcairo2, or write .svg");
  }
  const DynLib& lib = library.value();
  cairo::Functions f{};
  HVD_TRY(lib.take("cairo_image_surface_create", f.image_surface_create));
  HVD_TRY(lib.take("cairo_surface_status", f.surface_status));
  HVD_TRY(lib.take("cairo_surface_write_to_png_stream", f.surface_write_to_png_stream));
  HVD_TRY(lib.take("cairo_surface_destroy", f.surface_destroy));
  HVD_TRY(lib.take("cairo_create", f.create));
  HVD_TRY(lib.take("cairo_status", f.status));
  HVD_TRY(lib.take("cairo_status_to_string", f.status_to_string));
  HVD_TRY(lib.take("cairo_destroy", f.destroy));
  HVD_TRY(lib.take("cairo_scale", f.scale));
  HVD_TRY(lib.take("cairo_set_source_rgb", f.set_source_rgb));
  HVD_TRY(lib.take("cairo_paint", f.paint));
  HVD_TRY(lib.take("cairo_set_line_width", f.set_line_width));
  HVD_TRY(lib.take("cairo_set_dash", f.set_dash));
  HVD_TRY(lib.take("cairo_new_path", f.new_path));
  HVD_TRY(lib.take("cairo_move_to", f.move_to));
  HVD_TRY(lib.take("cairo_line_to", f.line_to));
  HVD_TRY(lib.take("cairo_arc", f.arc));
  HVD_TRY(lib.take("cairo_stroke", f.stroke));
  HVD_TRY(lib.take("cairo_fill", f.fill));
  HVD_TRY(lib.take("cairo_select_font_face", f.select_font_face));
  HVD_TRY(lib.take("cairo_set_font_size", f.set_font_size));
  HVD_TRY(lib.take("cairo_text_extents", f.text_extents));
  HVD_TRY(lib.take("cairo_show_text", f.show_text));
  return f;
}

class PngCanvas final : public Canvas {
 public:
  PngCanvas(const cairo::Functions& functions, Extent extent)
      : cairo_(functions),
        surface_(cairo_.image_surface_create(cairo::kFormatRgb24, static_cast<int>(extent.width * kScale),
                                             static_cast<int>(extent.height * kScale)),
                 cairo_.surface_destroy),
        context_(cairo_.create(surface_.get()), cairo_.destroy) {
    cairo_.set_source_rgb(context_.get(), 1, 1, 1);
    cairo_.paint(context_.get());
    cairo_.scale(context_.get(), kScale, kScale);
    cairo_.select_font_face(context_.get(), "sans-serif", cairo::kFontNormal, cairo::kFontNormal);
  }

  void rule(Point from, Point to, const Stroke& stroke) override { path(std::array{from, to}, stroke); }

  void path(std::span<const Point> points, const Stroke& stroke) override {
    use(stroke.rgb);
    cairo_.set_line_width(context_.get(), stroke.width);
    cairo_.set_dash(context_.get(), stroke.dashes.data(), static_cast<int>(stroke.dashes.size()), 0);
    for (const Point& point : points) {  // the first line_to of a path begins it
      cairo_.line_to(context_.get(), point.x, point.y);
    }
    cairo_.stroke(context_.get());
  }

  void dot(Point at, double radius, std::uint32_t rgb, const std::string&) override {
    use(rgb);
    cairo_.arc(context_.get(), at.x, at.y, radius, 0, 2 * std::numbers::pi);
    cairo_.fill(context_.get());
  }

  void text(Point at, Anchor anchor, double size, const std::string& text) override {
    use(0);
    cairo_.set_font_size(context_.get(), size);
    cairo::TextExtents extents{};
    cairo_.text_extents(context_.get(), text.c_str(), &extents);
    const double before = anchor == Anchor::kStart ? 0 : anchor == Anchor::kMiddle ? 0.5 : 1;
    cairo_.move_to(context_.get(), at.x - before * extents.x_advance, at.y);
    cairo_.show_text(context_.get(), text.c_str());
    cairo_.new_path(context_.get());  // show_text leaves a point behind
  }

  // What failed on the way is kept by the context and told here.
  Result<std::string> png() {
    HVD_TRY(check(cairo_.status(context_.get())));
    HVD_TRY(check(cairo_.surface_status(surface_.get())));
    std::string bytes;
    const auto append = [](void* closure, const unsigned char* data, unsigned length) {
      static_cast<std::string*>(closure)->append(reinterpret_cast<const char*>(data), length);
      return cairo::kSuccess;
    };
    HVD_TRY(check(cairo_.surface_write_to_png_stream(surface_.get(), append, &bytes)));
    return bytes;
  }

 private:
  void use(std::uint32_t rgb) {
    const auto part = [rgb](unsigned shift) { return static_cast<double>((rgb >> shift) & 0xffU) / 255; };
    cairo_.set_source_rgb(context_.get(), part(16), part(8), part(0));
  }

  [[nodiscard]] Result<void> check(int status) const {
    if (status != cairo::kSuccess) {
      return Error(Code::kResource, std::string("cairo: ") + cairo_.status_to_string(status));
    }
    return {};
  }

  const cairo::Functions cairo_;
  std::unique_ptr<cairo::Surface, void (*)(cairo::Surface*)> surface_;
  std::unique_ptr<cairo::Context, void (*)(cairo::Context*)> context_;
};

}  // namespace

Result<void> check_png() {
  HVD_TRY(load_cairo());
  return {};
}

Result<std::string> to_png(const Chart& chart) {
  HVD_TRY_ASSIGN(const cairo::Functions functions, load_cairo());
  PngCanvas canvas(functions, extent_of(chart));
  draw(chart, canvas);
  return canvas.png();
}

}  // namespace hvd::launch
