#include <algorithm>
#include <array>
#include <cctype>

#include "src/core/check.h"
#include "src/ops/contract/einsum_path.h"

namespace tenor::contract {
namespace {

using core::fail;

constexpr int kEllipsis = -1;

/// The letters of one term; "..." as kEllipsis.
std::vector<int> parse_term(std::string_view term, const std::string& where) {
  std::vector<int> symbols;
  bool dots = false;
  for (size_t i = 0; i < term.size(); ++i) {
    if (std::isalpha(static_cast<unsigned char>(term[i]))) {
      symbols.push_back(term[i]);
    } else if (!dots && term.substr(i, 3) == "...") {
      dots = true;
      symbols.push_back(kEllipsis);
      i += 2;
    } else {
      fail<ValueError>("einsum: subscripts '{}' of {} may hold letters and one '...', got '{}'", std::string(term),
                       where, term[i]);
    }
  }
  return symbols;
}

std::vector<std::string_view> split_terms(std::string_view text) {
  std::vector<std::string_view> terms;
  for (size_t start = 0;;) {
    const size_t comma = text.find(',', start);
    terms.push_back(text.substr(start, comma - start));
    if (comma == std::string_view::npos) return terms;
    start = comma + 1;
  }
}

/// Gives letters and ellipsis dims their label numbers.
class Labels {
 public:
  explicit Labels(Equation& equation) : equation_(equation) { letters_.fill(-1); }
  int letter(int symbol) {
    int& label = letters_[static_cast<size_t>(symbol)];
    if (label < 0) label = add(std::string(1, static_cast<char>(symbol)));
    return label;
  }
  bool known(int symbol) const { return letters_[static_cast<size_t>(symbol)] >= 0; }
  /// The dim of "..." that is `from_right` (0 is the last).
  int dots(size_t from_right) {
    while (dots_.size() <= from_right) dots_.push_back(add("dim -" + std::to_string(dots_.size() + 1) + " of ..."));
    return dots_[from_right];
  }
  /// All dims of "...", leftmost first.
  std::vector<int> all_dots() const { return {dots_.rbegin(), dots_.rend()}; }

 private:
  int add(std::string name) {
    equation_.names.push_back(std::move(name));
    return static_cast<int>(equation_.names.size()) - 1;
  }
  Equation& equation_;
  std::array<int, 128> letters_;
  std::vector<int> dots_;
};

std::vector<int> labels_of_operand(std::string_view term, size_t i, const Dims& shape, Labels& labels) {
  const std::vector<int> symbols = parse_term(term, "operand " + std::to_string(i));
  const bool dots = std::find(symbols.begin(), symbols.end(), kEllipsis) != symbols.end();
  const size_t letters = symbols.size() - (dots ? 1 : 0);
  if (letters > shape.size() || (!dots && letters < shape.size()))
    fail<ShapeError>("einsum: subscripts '{}' of operand {} name {} dims, it has {} with shape {}", std::string(term),
                     i, letters, shape.size(), shape);
  std::vector<int> out;
  for (int symbol : symbols) {
    if (symbol != kEllipsis)
      out.push_back(labels.letter(symbol));
    else
      for (size_t d = shape.size() - letters; d-- > 0;) out.push_back(labels.dots(d));
  }
  return out;
}

std::vector<int> labels_of_output(std::string_view term, std::string_view text, Labels& labels) {
  std::vector<int> out;
  for (int symbol : parse_term(term, "the output")) {
    if (symbol == kEllipsis) {
      for (int label : labels.all_dots()) out.push_back(label);
      continue;
    }
    if (!labels.known(symbol))
      fail<ValueError>("einsum: output subscript '{}' of '{}' is in no operand", static_cast<char>(symbol),
                       std::string(text));
    const int label = labels.letter(symbol);
    if (std::find(out.begin(), out.end(), label) != out.end())
      fail<ValueError>("einsum: output subscript '{}' of '{}' is given twice", static_cast<char>(symbol),
                       std::string(text));
    out.push_back(label);
  }
  return out;
}

/// Without "->": the dims of "...", then the letters that occur once, in order.
std::vector<int> implicit_output(std::string_view terms, Labels& labels) {
  std::vector<int> out = labels.all_dots();
  std::string letters(terms);
  std::sort(letters.begin(), letters.end());
  for (char c : letters)
    if (std::isalpha(static_cast<unsigned char>(c)) && std::count(letters.begin(), letters.end(), c) == 1)
      out.push_back(labels.letter(c));
  return out;
}

}  // namespace

void set_sizes(Equation& equation, std::span<const Dims> shapes) {
  equation.sizes = Dims(equation.names.size(), -1);
  std::vector<size_t> owner(equation.names.size(), 0);
  for (size_t i = 0; i < shapes.size(); ++i) {
    const std::vector<int>& term = equation.terms[i];
    for (size_t d = 0; d < term.size(); ++d) {
      const int label = term[d];
      const std::string& name = equation.names[label];
      const int64_t size = shapes[i][d];
      const size_t first = std::find(term.begin(), term.end(), label) - term.begin();
      if (shapes[i][first] != size)
        fail<ShapeError>("{}: subscript '{}' has sizes {} and {} in operand {}", equation.op, name, shapes[i][first],
                         size, i);
      int64_t& known = equation.sizes[label];
      if (known != size && known > -1 && known != 1 && size != 1)
        fail<ShapeError>("{}: subscript '{}' has size {} in operand {} and size {} in operand {}", equation.op, name,
                         known, owner[label], size, i);
      if (known < 0 || (known == 1 && size != 1)) known = size, owner[label] = i;
    }
  }
}

Equation parse_equation(std::string_view text, std::span<const Dims> shapes) {
  std::string dense;
  for (char c : text)
    if (c != ' ') dense.push_back(c);
  const size_t arrow = dense.find("->");
  const std::string left = dense.substr(0, arrow);
  const std::vector<std::string_view> terms = split_terms(left);
  if (terms.size() != shapes.size())
    fail<ValueError>("einsum: '{}' names {} operands, got {}", std::string(text), terms.size(), shapes.size());
  Equation equation{"einsum", {}, {}};
  Labels labels(equation);
  for (size_t i = 0; i < terms.size(); ++i) equation.terms.push_back(labels_of_operand(terms[i], i, shapes[i], labels));
  equation.out = arrow == std::string::npos ? implicit_output(left, labels)
                                            : labels_of_output(std::string_view(dense).substr(arrow + 2), text, labels);
  if (equation.names.size() > kMaxLabels)
    fail<UnsupportedError>("einsum: at most {} different dims, got {}", kMaxLabels, equation.names.size());
  set_sizes(equation, shapes);
  return equation;
}

}  // namespace tenor::contract
