// The part of cairo's C interface that a chart needs, as of cairo 1.0 (2005), which its soname libcairo.so.2 promises
// to keep: the library is loaded only by a process that writes a PNG, and no header of it is needed to build.
#pragma once

namespace hvd::launch::cairo {

struct Surface;
struct Context;

constexpr int kSuccess = 0;
constexpr int kFormatRgb24 = 1;
constexpr int kFontNormal = 0;

struct TextExtents {
  double x_bearing, y_bearing, width, height, x_advance, y_advance;
};

using WriteFn = int (*)(void* closure, const unsigned char* data, unsigned length);

struct Functions {
  Surface* (*image_surface_create)(int format, int width, int height);
  int (*surface_status)(Surface*);
  int (*surface_write_to_png_stream)(Surface*, WriteFn, void* closure);
  void (*surface_destroy)(Surface*);
  Context* (*create)(Surface*);
  int (*status)(Context*);
  const char* (*status_to_string)(int status);
  void (*destroy)(Context*);
  void (*scale)(Context*, double x, double y);
  void (*set_source_rgb)(Context*, double red, double green, double blue);
  void (*paint)(Context*);
  void (*set_line_width)(Context*, double width);
  void (*set_dash)(Context*, const double* dashes, int count, double offset);
  void (*new_path)(Context*);
  void (*move_to)(Context*, double x, double y);
  void (*line_to)(Context*, double x, double y);
  void (*arc)(Context*, double x, double y, double radius, double from, double to);
  void (*stroke)(Context*);
  void (*fill)(Context*);
  void (*select_font_face)(Context*, const char* family, int slant, int weight);
  void (*set_font_size)(Context*, double size);
  void (*text_extents)(Context*, const char* text, TextExtents*);
  void (*show_text)(Context*, const char* text);
};

}  // namespace hvd::launch::cairo
