// einsum, its path, and tensordot.
#include "src/ops/contract/contract_reference.h"
#include "tenor/contract.h"
#include "tenor/modes.h"
#include "tenor/view.h"

namespace tenor {
namespace {

using namespace testing;

Tensor einsum_of(const std::string& equation, std::vector<Tensor> operands, const ContractOptions& options = {}) {
  return einsum(equation, operands, options);
}

struct Drawn {
  std::vector<reference::Term> terms;
  std::vector<Tensor> operands;
  std::string equation, out;
  int64_t volume = 1;
};

/// A random equation over letters a to g of random sizes, with repeated letters and broadcasting ones.
Drawn draw_equation(Draw& draw, DType dtype) {
  Drawn d;
  int64_t size[7];
  for (int64_t& s : size) s = draw.upto(9) == 0 ? 0 : draw.upto(4) + 1;
  const int64_t count = draw.upto(3) + 1, letters = draw.upto(4) + 2;
  std::string used;
  for (int64_t t = 0; t < count; ++t) {
    std::string labels;
    Dims shape;
    for (int64_t i = draw.upto(3); i > 0; --i) labels += static_cast<char>('a' + draw.upto(letters));
    for (char c : labels) {
      const bool repeated = std::count(labels.begin(), labels.end(), c) > 1;
      shape.push_back(!repeated && draw.upto(7) == 0 ? 1 : size[c - 'a']);
      if (used.find(c) == std::string::npos) used += c, d.volume *= std::max<int64_t>(size[c - 'a'], 1);
    }
    d.operands.push_back(draw.view(shape, dtype));
    d.equation += (t ? "," : "") + labels;
    // The reference walks a diagonal as one label: views make it so.
    Tensor x = d.operands.back();
    std::string distinct;
    Dims dims, strides;
    for (size_t i = 0; i < labels.size(); ++i) {
      const size_t at = distinct.find(labels[i]);
      if (at != std::string::npos)
        strides[at] += x.stride(static_cast<int>(i));
      else
        distinct += labels[i], dims.push_back(x.shape(static_cast<int>(i))),
            strides.push_back(x.stride(static_cast<int>(i)));
    }
    d.terms.push_back({x.with_layout(dims, strides, x.offset()), distinct});
  }
  for (char c : used)
    if (draw.coin()) d.out.insert(d.out.begin() + draw.upto(static_cast<int64_t>(d.out.size())), c);
  d.equation += "->" + d.out;
  return d;
}

TEST(Einsum, MatchesTheDefinitionOnRandomEquations) {
  Draw draw(1);
  for (int i = 0; i < 400; ++i) {
    const DType dtype = kFloats[i % 4];
    const Drawn d = draw_equation(draw, dtype);
    std::string what = d.equation;
    for (const Tensor& x : d.operands) what += " " + to_string(x.shape()) + to_string(x.strides());
    const reference::Sum want = reference::contract(d.terms, d.out);
    const Tensor out = draw.poisoned(want.shape, dtype);
    einsum(d.equation, d.operands, {.out = out});
    reference::expect_sum(out, want, d.volume + 8, dtype == float64 ? float64 : float32, what);
    const BatchInvariantGuard guard;
    reference::expect_sum(einsum(d.equation, d.operands), want, d.volume + 8, dtype == float64 ? float64 : float32,
                          what + " in order");
  }
}

TEST(Einsum, IntegersWrap) {
  Draw draw(2);
  for (int i = 0; i < 60; ++i) {
    Drawn d = draw_equation(draw, int32);
    EXPECT_EQ(values(einsum(d.equation, d.operands)), reference::contract(d.terms, d.out, 32).values) << d.equation;
  }
}

TEST(Einsum, EllipsisStandsForTheDimsBetween) {
  Draw draw(3);
  const Tensor a = draw.dense({1, 3, 4}, float32), b = draw.dense({2, 4, 5}, float32);
  const reference::Sum want = reference::contract({{a, "bij"}, {b, "bjk"}}, "bik");
  reference::expect_sum(einsum_of("...ij,...jk->...ik", {a, b}), want, 4, float32, "explicit");
  reference::expect_sum(einsum_of(" ... ij , ... jk ", {a, b}), want, 4, float32, "implicit");
  const Tensor c = draw.dense({2, 3}, float32), d = draw.dense({2}, float32);
  reference::expect_sum(einsum_of("i...,i", {c, d}), reference::contract({{c, "ij"}, {d, "i"}}, "j"), 2, float32,
                        "between");
  reference::expect_sum(einsum_of("i...->...i", {c}), reference::contract({{c, "ij"}}, "ji"), 1, float32, "moved");
  reference::expect_sum(einsum_of("...i->i", {c}), reference::contract({{c, "ij"}}, "j"), 2, float32, "summed");
  EXPECT_EQ(einsum_of("...", {a}).shape(), a.shape());
}

TEST(Einsum, ImplicitOutputIsAlphabetical) {
  Draw draw(4);
  const Tensor a = draw.dense({2, 3}, float64);
  reference::expect_sum(einsum_of("ba", {a}), reference::contract({{a, "ba"}}, "ab"), 1, float64, "transposed");
  const Tensor b = draw.dense({3, 4}, float64);
  reference::expect_sum(einsum_of("ij,jh", {a, b}), reference::contract({{a, "ij"}, {b, "jh"}}, "hi"), 3, float64,
                        "h before i");
}

TEST(Einsum, SizeOneBroadcastsUnderSummedLetters) {
  const Tensor a = tensor_of({2, 1}, float32, {1, 2}), b = tensor_of({3, 2}, float32, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(values(einsum_of("ij,jk->ik", {a, b})), (std::vector<double>{9, 12, 18, 24}));
  EXPECT_EQ(values(einsum_of("i,i->", {full({1}, float32, 1), Tensor::empty({0}, float32)})), std::vector<double>{0});
}

TEST(Einsum, RoundsOnceAtTheVeryEnd) {
  // In float16 the first product overflows and the partial sums of the second lose their last bits.
  const Tensor a = full({1, 4}, float16, 300), b = full({4, 1}, float16, 300), c = full({1, 1}, float16, 0x1p-10);
  EXPECT_EQ(values(einsum_of("ij,jk,kl->il", {a, b, c})),
            std::vector<double>{rounded(4 * 300.0 * 300.0 * 0x1p-10, float16)});
  const Tensor row = tensor_of({4}, float16, {2048, 1, 1, 1});
  EXPECT_EQ(values(einsum_of("i->", {row})), std::vector<double>{2052});
  EXPECT_EQ(values(einsum_of("i->", {row}, {.dtype = float32})), std::vector<double>{2051});
}

TEST(Einsum, OutMayBeAnOperandAndNewMemoryIsNew) {
  Draw draw(5);
  const Tensor a = draw.dense({6, 6}, float32), want = einsum_of("ij->ji", {a});
  EXPECT_NE(want.raw(), a.raw());
  EXPECT_TRUE(same_bits(einsum_of("ij->ji", {a}, {.out = a}), want));
}

TEST(EinsumPath, TakesTheCheapestPairwiseOrder) {
  const std::vector<Dims> chain = {{10, 1000}, {1000, 10}, {10, 1000}, {1000, 5}};
  const EinsumPath path = einsum_path("ab,bc,cd,de->ae", chain);
  // (cd de) first: 10 * 1000 * 5, then bc (1000 * 10 * 5) and ab.
  EXPECT_LE(path.flops, 2 * (10 * 1000 * 5 + 1000 * 10 * 5 + 10 * 1000 * 5));
  EXPECT_EQ(path.steps.size(), 3u);
  EXPECT_EQ(path.shape, (Dims{10, 5}));
}

/// The least cost over all orders, by trying each pair first: what the dynamic program must reach.
double least(std::vector<std::string> terms, const std::string& out, const std::map<char, double>& size) {
  if (terms.size() == 1) return 0;
  double best = 1e300;
  for (size_t a = 0; a < terms.size(); ++a)
    for (size_t b = a + 1; b < terms.size(); ++b) {
      std::string both = terms[a], kept;
      for (char c : terms[b])
        if (both.find(c) == std::string::npos) both += c;
      std::vector<std::string> rest;
      std::string needed = out;
      for (size_t i = 0; i < terms.size(); ++i)
        if (i != a && i != b) rest.push_back(terms[i]), needed += terms[i];
      double volume = 1;
      for (char c : both) {
        volume *= size.at(c);
        if (needed.find(c) != std::string::npos) kept += c;
      }
      rest.push_back(kept);
      best = std::min(best, volume * (kept == both ? 1 : 2) + least(rest, out, size));
    }
  return best;
}

TEST(EinsumPath, IsAsCheapAsTryingEveryOrder) {
  Draw draw(6);
  for (int i = 0; i < 60; ++i) {
    std::map<char, double> size;
    for (char c = 'a'; c <= 'f'; ++c) size[c] = static_cast<double>(draw.upto(20) + 2);
    std::vector<std::string> terms;
    std::vector<Dims> shapes;
    std::string equation, all;
    for (int64_t t = draw.upto(3) + 2; t > 0; --t) {
      std::string term;
      for (char c = 'a'; c <= 'f'; ++c)
        if (draw.coin()) term += c;
      terms.push_back(term), all += term;
      equation += (equation.empty() ? "" : ",") + (term.empty() ? "" : term);
      Dims shape;
      for (char c : term) shape.push_back(static_cast<int64_t>(size[c]));
      shapes.push_back(shape);
    }
    std::string out;
    for (char c = 'a'; c <= 'f'; ++c)
      if (std::count(all.begin(), all.end(), c) == 1 || (draw.coin() && all.find(c) != std::string::npos)) out += c;
    if (equation.find(",,") != std::string::npos || equation.empty() || equation[0] == ',' ||
        std::count(equation.begin(), equation.end(), ',') + 1 != static_cast<long>(shapes.size()))
      continue;
    EXPECT_EQ(static_cast<double>(einsum_path(equation + "->" + out, shapes).flops), least(terms, out, size))
        << equation << "->" << out;
  }
}

TEST(EinsumPath, ManyOperandsAreTakenGreedily) {
  std::string equation;
  std::vector<Dims> shapes;
  std::vector<Tensor> operands;
  Draw draw(7);
  for (int i = 0; i < 12; ++i) {
    equation += std::string(i ? "," : "") + static_cast<char>('a' + i) + static_cast<char>('b' + i);
    shapes.push_back({3, 3});
    operands.push_back(draw.dense({3, 3}, float64));
  }
  EXPECT_EQ(einsum_path(equation, shapes).steps.size(), 11u);
  Tensor want = operands[0];
  for (int i = 1; i < 12; ++i) want = matmul(want, operands[static_cast<size_t>(i)]);
  const std::vector<double> have = values(einsum(equation, operands)), expected = values(want);
  for (size_t i = 0; i < have.size(); ++i) EXPECT_NEAR(have[i], expected[i], 1e-9 * (1 + std::abs(expected[i])));
}

TEST(EinsumPath, CountsOneFlopWhereNothingIsSummed) {
  const Dims two[] = {{4}, {5}}, one[] = {{4, 5}};
  EXPECT_EQ(einsum_path("i,j->ij", two).flops, 20);
  EXPECT_EQ(einsum_path("ij->ji", one).flops, 0);
  EXPECT_EQ(einsum_path("ij->i", one).flops, 20);
  EXPECT_EQ(einsum_path("ij->i", one).steps[0].equation, "ij->i");
}

TEST(EinsumErrors, NameTheSubscriptTheOperandAndBothSizes) {
  const Tensor a = full({2, 3}, float32, 1), b = full({4, 5}, float32, 1);
  expect_error<ShapeError>(
      [&] {
        einsum_of("ij,jk->ik", {a, b});
      },
      "einsum: subscript 'j' has size 3 in operand 0 and size 4 in operand 1");
  expect_error<ShapeError>([&] { einsum_of("ii->i", {a}); }, "einsum: subscript 'i' has sizes 2 and 3 in operand 0");
  expect_error<ShapeError>(
      [&] {
        einsum_of("...i,...i->...", {full({2, 7}, float32, 1), full({3, 7}, float32, 1)});
      },
      "einsum: subscript 'dim -1 of ...' has size 2 in operand 0 and size 3 in operand 1");
  expect_error<ValueError>([&] { einsum_of("ij,jk->ik", {a}); }, "einsum: 'ij,jk->ik' names 2 operands, got 1");
  expect_error<ValueError>([&] { einsum_of("ij->iz", {a}); },
                           "einsum: output subscript 'z' of 'ij->iz' is in no operand");
  expect_error<ValueError>([&] { einsum_of("ij->ii", {a}); },
                           "einsum: output subscript 'i' of 'ij->ii' is given twice");
  expect_error<ShapeError>([&] { einsum_of("ijk->i", {a}); },
                           "einsum: subscripts 'ijk' of operand 0 name 3 dims, it has 2 with shape (2, 3)");
  expect_error<ValueError>([&] { einsum_of("i1->i", {a}); },
                           "einsum: subscripts 'i1' of operand 0 may hold letters and one '...', got '1'");
  EXPECT_THROW(einsum_of("", {}), ValueError);
}

TEST(Tensordot, SumsOverPairsOfDims) {
  Draw draw(8);
  const Tensor a = draw.view({2, 3, 4}, float32), b = draw.view({3, 4, 5}, float32), c = draw.view({4, 6, 2}, float32);
  reference::expect_sum(tensordot(a, b), reference::contract({{a, "aij"}, {b, "ijb"}}, "ab"), 12, float32, "two");
  reference::expect_sum(tensordot(a, b, 0), reference::contract({{a, "abc"}, {b, "xyz"}}, "abcxyz"), 1, float32,
                        "none");
  reference::expect_sum(tensordot(a, c, Dims{0, -1}, Dims{2, 0}), reference::contract({{a, "ixj"}, {c, "jyi"}}, "xy"),
                        8, float32, "pairs");
  expect_error<ShapeError>(
      [&] { tensordot(a, c, Dims{1}, Dims{0}); },
      "tensordot: dims pair dim 1 of x, of size 3, with dim 0 of b, of size 4; shapes (2, 3, 4) and (4, 6, 2)");
  expect_error<ValueError>([&] { tensordot(a, b, 4); },
                           "tensordot: dims must be between 0 and 3, the dims that both operands have, got 4");
  EXPECT_THROW(tensordot(a, b, Dims{0, 0}, Dims{0, 1}), ValueError);
  EXPECT_THROW(tensordot(a, b, Dims{3}, Dims{0}), IndexError);
  EXPECT_THROW(tensordot(a, b, Dims{0, 1}, Dims{0}), ValueError);
}

}  // namespace
}  // namespace tenor
