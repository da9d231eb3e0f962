// The table that prints an Explanation.
#include <algorithm>

#include "src/core/step.h"
#include "src/core/text.h"
#include "tenor/explain.h"

namespace tenor {
namespace {

using core::text;

constexpr const char *kDim = "\033[2m", *kBold = "\033[1m", *kRed = "\033[31m", *kBlue = "\033[34m",
                     *kGreen = "\033[32m", *kPlain = "\033[0m";

/// Three digits and a unit.
std::string scaled(double value, double base, const std::vector<const char*>& units) {
  size_t unit = 0;
  while (value >= base && unit + 1 < units.size()) value /= base, ++unit;
  const int digits = unit == 0 && value == static_cast<int64_t>(value) ? 0 : value < 10 ? 2 : value < 100 ? 1 : 0;
  return core::vtext("{:.{}f}{}", fmt::make_format_args(value, digits, units[unit]));
}
std::string bytes_text(int64_t bytes) {
  return bytes == 0 ? "-" : scaled(static_cast<double>(bytes), 1024, {" B", " KiB", " MiB", " GiB", " TiB"});
}
std::string count_text(int64_t count) {
  return count == 0 ? "-" : scaled(static_cast<double>(count), 1000, {"", " k", " M", " G", " T", " P"});
}
std::string time_text(double us) {
  if (us <= 0) return "-";
  if (us < 0.001) return "<1 ns";
  return us < 1 ? scaled(us * 1000, 1000, {" ns", " us"}) : scaled(us, 1000, {" us", " ms", " s"});
}

const char* class_text(const Explanation::Step& s) {
  static constexpr const char* kNames[] = {"?", "view", "element", "reduce", "index", "contract"};
  return s.op_class == 1 && !s.view ? "copy" : kNames[s.op_class];
}

const char* dtype_text(DType dtype) {
  static constexpr const char* kNames[] = {"bool", "i8",  "i16",  "i32", "i64", "u8",     "u16",   "u32",
                                           "u64",  "f16", "bf16", "f32", "f64", "f8e4m3", "f8e5m2"};
  return kNames[static_cast<size_t>(dtype)];
}

/// "bf16[4096,8192]": as specs are written.
std::string spec_text(DType dtype, const Dims& shape) {
  std::string out = std::string(dtype_text(dtype)) + "[";
  for (size_t d = 0; d < shape.size(); ++d) out += (d ? "," : "") + std::to_string(shape[d]);
  return out + "]";
}

std::string clipped(const std::string& s, size_t width) {
  return s.size() <= width ? s : s.substr(0, width > 2 ? width - 2 : 0) + "..";
}

/// Words of `body` on lines of `width`, each behind `indent` blanks; a word longer than a line is cut.
std::string wrapped(const std::string& body, size_t indent, size_t width) {
  std::string out(indent, ' ');
  size_t column = indent;
  for (size_t at = 0; at < body.size();) {
    const size_t end = std::min({body.find(' ', at), body.size(), at + width - indent});
    if (column > indent && column + 1 + (end - at) > width) {
      out += "\n" + std::string(indent, ' ');
      column = indent;
    } else if (column > indent) {
      out += ' ', ++column;
    }
    out += body.substr(at, end - at), column += end - at;
    at = end < body.size() && body[end] == ' ' ? end + 1 : end;
  }
  return out + "\n";
}

std::string list_text(const std::vector<int>& numbers) {
  std::string out;
  for (size_t i = 0; i < numbers.size(); ++i) {
    size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    out += (out.empty() ? "" : ", ") + std::to_string(numbers[i]);
    if (last > i) out += (last == i + 1 ? ", " : "-") + std::to_string(numbers[last]);
    i = last;
  }
  return out;
}

struct Column {
  const char* title;
  bool left;
  std::vector<std::string> cells = {};
  size_t width = 0;
};

class Table {
 public:
  Table(const Explanation& e, size_t width, bool color) : e_(e), width_(width), color_(color) {}

  std::string write() {
    steps();
    totals();
    kernels();
    cuts();
    remarks();
    return out_;
  }

 private:
  std::string painted(const char* paint, const std::string& s) const { return color_ ? paint + s + kPlain : s; }
  bool measured() const {
    return std::any_of(e_.steps.begin(), e_.steps.end(), [](const auto& s) { return s.time_us > 0; });
  }

  std::vector<Column> columns() const {
    std::vector<Column> all{{"#", false},       {"step", true},   {"class", true}, {"result", true}, {"read", false},
                            {"written", false}, {"FLOPs", false}, {"bound", true}, {"floor", false}};
    if (measured()) all.push_back({"time", false}), all.push_back({"share", false});
    for (size_t i = 0; i < e_.steps.size(); ++i) {
      const auto& s = e_.steps[i];
      std::vector<std::string> row{std::to_string(i),
                                   s.op,
                                   class_text(s),
                                   spec_text(s.dtype, s.shape),
                                   bytes_text(s.bytes_read),
                                   bytes_text(s.bytes_written),
                                   count_text(s.flops),
                                   s.bound == "none" ? "-" : s.bound,
                                   time_text(s.floor_us)};
      if (measured())
        row.push_back(time_text(s.time_us)),
            row.push_back(s.time_us > 0 ? text("{}%", static_cast<int>(100 * s.share + 0.5)) : "-");
      for (size_t c = 0; c < row.size(); ++c) all[c].cells.push_back(row[c]);
    }
    for (Column& c : all) {
      c.width = std::string(c.title).size();
      for (const std::string& cell : c.cells) c.width = std::max(c.width, cell.size());
    }
    fit(all);
    return all;
  }

  /// What does not fit is taken from the two columns of free text, then columns are left out.
  void fit(std::vector<Column>& all) const {
    const auto over = [&] {
      size_t total = 0;
      for (const Column& c : all) total += c.width + 2;
      return total - 2 > width_ ? total - 2 - width_ : 0;
    };
    for (const size_t c : {size_t{3}, size_t{1}})
      all[c].width -= std::min(over(), all[c].width > 12 ? all[c].width - 12 : 0);
    for (const std::string title : {"bound", "class", "FLOPs"})
      if (over() > 0) std::erase_if(all, [&](const Column& c) { return c.title == title; });
  }

  std::string line(const std::vector<Column>& all, size_t row, bool title) const {
    std::string out;
    for (size_t i = 0; i < all.size(); ++i) {
      const Column& c = all[i];
      const std::string cell = clipped(title ? c.title : c.cells[row], c.width);
      const std::string blank(c.width - cell.size(), ' ');
      std::string shown = cell;
      if (!title && cell == "memory") shown = painted(kBlue, cell);
      if (!title && cell == "compute") shown = painted(kGreen, cell);
      out += c.left ? shown + blank : blank + shown;
      if (i + 1 < all.size()) out += "  ";
    }
    while (!out.empty() && out.back() == ' ') out.pop_back();
    return title ? painted(kBold, out) + "\n" : out + "\n";
  }

  void steps() {
    const std::vector<Column> all = columns();
    out_ += line(all, 0, true);
    std::string source;
    for (size_t i = 0; i < e_.steps.size(); ++i) {
      if (e_.steps[i].source != source && !(source = e_.steps[i].source).empty())
        out_ += painted(kDim, wrapped(clipped(source, 3 * (width_ - 3)), 3, width_));
      out_ += line(all, i, false);
      if (!e_.steps[i].note.empty()) out_ += painted(kDim, wrapped(e_.steps[i].note, all[0].width + 4, width_));
    }
    if (e_.steps.empty()) out_ += "  nothing runs\n";
  }

  void totals() {
    double eager = 0, fused = 0, predicted = 0, time = 0;
    int64_t eager_bytes = 0;
    for (const auto& s : e_.steps) {
      eager += s.floor_us, time += s.time_us;
      eager_bytes = core::count_sum(eager_bytes, core::count_sum(s.bytes_read, s.bytes_written));
    }
    for (const auto& k : e_.kernels) fused += k.floor_us, predicted += k.predicted_us;
    const auto bytes = [](int64_t n) { return n == 0 ? "0 B" : bytes_text(n); };
    out_ += "\n" +
            text("{} FLOP{}; {} needed: inputs once, outputs once", e_.flops ? count_text(e_.flops) : "0",
                 e_.flops == 1 ? "" : "s", bytes(e_.bytes_needed)) +
            "\n";
    out_ += text("step by step: {} moved, floor {}", bytes(eager_bytes), time_text(eager));
    if (time > 0) out_ += text(", measured {}", time_text(time));
    out_ += "\n" +
            text("as planned:   {} moved, floor {}, predicted {}", bytes(e_.bytes_moved), time_text(fused),
                 time_text(predicted)) +
            "\n";
    out_ += painted(kDim, wrapped(text("on {}: {}", e_.device, e_.device_source), 0, width_));
  }

  void kernels() {
    out_ += "\n" + painted(kBold, e_.kernels.size() == 1 ? "1 kernel" : text("{} kernels", e_.kernels.size())) + "\n";
    for (size_t i = 0; i < e_.kernels.size(); ++i) {
      const auto& k = e_.kernels[i];
      std::string line = text("{}: {} {}", i, k.steps.size() == 1 ? "step" : "steps", list_text(k.steps));
      line += k.strategy == "view" ? ", a view: nothing runs"
                                   : text(", reads {}, writes {}, floor {}", bytes_text(k.bytes_read),
                                          bytes_text(k.bytes_written), time_text(k.floor_us));
      if (!k.strategy.empty() && k.strategy != "view") line += ", " + k.strategy;
      out_ += wrapped(line, 2, width_);
      for (const std::string& reason : k.declined) out_ += wrapped("not " + reason, 6, width_);
    }
  }

  void cuts() {
    for (const auto& cut : e_.cuts)
      out_ += wrapped(text("cut between {} and {}: {}", cut.before, cut.after, cut.reason), 2, width_);
    if (!e_.intermediates.empty())
      out_ += wrapped(text("through memory: the {} of step{} {}", e_.intermediates.size() == 1 ? "result" : "results",
                           e_.intermediates.size() == 1 ? "" : "s", list_text(e_.intermediates)),
                      2, width_);
  }

  void remarks() {
    if (!e_.copies.empty()) out_ += "\n" + painted(kBold, "copies") + "\n";
    for (const auto& copy : e_.copies)
      out_ +=
          painted(kRed, wrapped(text("step {}: {}, {}", copy.step, bytes_text(copy.bytes), copy.reason), 2, width_));
    if (!e_.promotions.empty()) out_ += "\n" + painted(kBold, "promotions") + "\n";
    for (const auto& p : e_.promotions) {
      std::string from;
      for (DType d : p.dtypes) from += (from.empty() ? "" : " and ") + std::string(name(d));
      out_ += wrapped(text("step {} ({}): {} become{} {}", p.step, e_.steps[static_cast<size_t>(p.step)].op, from,
                           p.dtypes.size() == 1 ? "s" : "", p.to),
                      2, width_);
    }
  }

  const Explanation& e_;
  size_t width_;
  bool color_;
  std::string out_;
};

}  // namespace

std::string to_string(const Explanation& explanation, int width, bool color) {
  std::string out = Table(explanation, static_cast<size_t>(std::max(width, 60)), color).write();
  while (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

}  // namespace tenor
