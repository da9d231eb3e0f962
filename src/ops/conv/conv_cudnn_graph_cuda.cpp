// The graph of a convolution in cuDNN's descriptors. Padding may differ from side to side; one dim is computed as two.
#include "src/ops/conv/conv_cudnn.h"

#if TENOR_HAS_CUDA && __has_include(<cudnn.h>)

#include <utility>

#include "src/ops/conv/conv_sizes.h"

namespace tenor::conv {
namespace {

using cuda::CudnnDescriptor;
using Sizes = std::vector<int64_t>;

cudnnDataType_t type_of(DType dtype) {
  switch (dtype) {
    case DType::kFloat64:
      return CUDNN_DATA_DOUBLE;
    case DType::kFloat16:
      return CUDNN_DATA_HALF;
    case DType::kBFloat16:
      return CUDNN_DATA_BFLOAT16;
    default:
      return CUDNN_DATA_FLOAT;
  }
}

/// A value for each spatial dim that cuDNN is told of: two at least.
template <class F>
Sizes spatial(const ConvProblem& p, F&& of) {
  Sizes out;
  for (int d = kSpatial - std::max(p.dims, 2); d < kSpatial; ++d) out.push_back(of(d));
  return out;
}
Sizes with(Sizes front, const Sizes& back) {
  front.insert(front.end(), back.begin(), back.end());
  return front;
}

/// A tensor's sizes and strides. Strides of dims of size 1 carry no meaning, but cuDNN tells layouts by them: they
/// become those of the dense layout, channels last where `last`.
struct Layout {
  Sizes sizes, strides;
  Layout(Sizes sizes_, Sizes strides_, bool last) : sizes(std::move(sizes_)), strides(std::move(strides_)) {
    const size_t rank = sizes.size();
    std::vector<size_t> order = {0};
    if (!last) order.push_back(1);
    for (size_t i = 2; i < rank; ++i) order.push_back(i);
    if (last) order.push_back(1);
    int64_t dense = 1;
    for (size_t i = rank; i-- > 0;) {
      const size_t d = order[i];
      if (sizes[d] == 1) strides[d] = dense;
      dense = std::max(dense, sizes[d] * strides[d]);
    }
  }
};

bool is_last(const ConvProblem& p) {
  if (p.channels > 1) return p.input.channel == 1;
  return p.out_channels > 1 && p.output.channel == 1;
}

Layout image_layout(const ConvProblem& p, const Image& x, int64_t channels, bool input) {
  return {with({p.batch, channels}, spatial(p, [&](int d) { return input ? p.window[d].input : p.window[d].output; })),
          with({x.batch, x.channel}, spatial(p, [&](int d) { return x.spatial[d]; })), is_last(p)};
}
Layout weight_layout(const ConvProblem& p) {
  return {with({p.out_channels, p.group_channels()}, spatial(p, [&](int d) { return p.window[d].kernel; })),
          with({p.weight.out, p.weight.in}, spatial(p, [&](int d) { return p.weight.spatial[d]; })),
          p.weight.in == 1 && (p.taps() > 1 || is_last(p))};
}

CudnnDescriptor tensor(CudnnOperand name, DType dtype, const Layout& layout, int64_t alignment,
                       bool is_virtual = false) {
  CudnnDescriptor x(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  x.set(CUDNN_ATTR_TENSOR_UNIQUE_ID, static_cast<int64_t>(name));
  x.set(CUDNN_ATTR_TENSOR_DATA_TYPE, type_of(dtype));
  x.set(CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, alignment);
  x.set(CUDNN_ATTR_TENSOR_DIMENSIONS, layout.sizes);
  x.set(CUDNN_ATTR_TENSOR_STRIDES, layout.strides);
  if (is_virtual) x.set(CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_virtual);
  x.finalize();
  return x;
}

/// How the operands' tensors are attributes of a direction's operation.
struct Names {
  cudnnBackendDescriptorType_t operation;
  cudnnBackendAttributeName_t convolution, input, weight, output, alpha, beta;
};
constexpr Names kNames[] = {
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
     CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA},
};

CudnnDescriptor window_of(const ConvProblem& p) {
  CudnnDescriptor c(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
  c.set(CUDNN_ATTR_CONVOLUTION_COMP_TYPE, type_of(compute_dtype(p.dtype)));
  c.set(CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
  c.set(CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, static_cast<int64_t>(std::max(p.dims, 2)));
  c.set(CUDNN_ATTR_CONVOLUTION_DILATIONS, spatial(p, [&](int d) { return p.window[d].dilation; }));
  c.set(CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, spatial(p, [&](int d) { return p.window[d].stride; }));
  c.set(CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, spatial(p, [&](int d) { return p.window[d].before; }));
  c.set(CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, spatial(p, [&](int d) { return p.window[d].before; }));
  c.finalize();
  return c;
}

void set_scale(CudnnDescriptor& operation, const ConvProblem& p, cudnnBackendAttributeName_t name, float value) {
  const double wide = value;
  if (p.dtype == DType::kFloat64) return operation.set(name, CUDNN_TYPE_DOUBLE, 1, &wide);
  operation.set(name, CUDNN_TYPE_FLOAT, 1, &value);
}

/// y = x + bias, rounded once.
CudnnDescriptor addition(const ConvProblem& p, const CudnnDescriptor& x, const CudnnDescriptor& y) {
  const int64_t channels = written_channels(p);
  const Sizes ones = spatial(p, [](int) { return int64_t{1}; });
  const CudnnDescriptor bias = tensor(kBias, p.dtype, {with({1, channels}, ones), with({channels, 1}, ones), true},
                                      static_cast<int64_t>(item_size(p.dtype)));
  CudnnDescriptor add(CUDNN_BACKEND_POINTWISE_DESCRIPTOR), operation(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
  const cudnnPointwiseMode_t mode = CUDNN_POINTWISE_ADD;
  add.set(CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
  add.set(CUDNN_ATTR_POINTWISE_MATH_PREC, type_of(compute_dtype(p.dtype)));
  add.finalize();
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, add);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_BDESC, bias);
  operation.set(CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
  operation.finalize();
  return operation;
}

}  // namespace

CudnnDescriptor cudnn_graph(cudnnHandle_t handle, const ConvProblem& p) {
  const Layout layouts[] = {image_layout(p, p.input, p.channels, true), weight_layout(p),
                            image_layout(p, p.output, p.out_channels, false)};
  const void* const data[] = {p.input.data, p.weight.data, p.output.data};
  const int written = p.direction == Direction::kForward ? 2 : p.direction == Direction::kDataBackward ? 0 : 1;
  CudnnDescriptor operands[3], sum;
  for (int i = 0; i < 3; ++i)
    operands[i] = tensor(static_cast<CudnnOperand>(kInput + i), p.dtype, layouts[i], cudnn_alignment(data[i]));
  if (p.bias) sum = tensor(kSum, compute_dtype(p.dtype), layouts[written], 16, true);
  const auto operand = [&](int i) -> const CudnnDescriptor& { return p.bias && i == written ? sum : operands[i]; };
  const Names& names = kNames[static_cast<int>(p.direction)];
  CudnnDescriptor product(names.operation);
  product.set(names.convolution, window_of(p));
  product.set(names.input, operand(0));
  product.set(names.weight, operand(1));
  product.set(names.output, operand(2));
  set_scale(product, p, names.alpha, 1);
  set_scale(product, p, names.beta, 0);
  product.finalize();
  std::vector<CudnnDescriptor> operations = {product};
  if (p.bias) operations.push_back(addition(p, sum, operands[written]));
  std::vector<cudnnBackendDescriptor_t> raw;
  for (const CudnnDescriptor& operation : operations) raw.push_back(operation.get());
  CudnnDescriptor graph(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle);
  graph.set(CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, static_cast<int64_t>(raw.size()), raw.data());
  graph.finalize();
  return graph;
}

}  // namespace tenor::conv

#endif
