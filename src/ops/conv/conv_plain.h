// The definition's own sums, an element at a time: for problems that no scratch holds, and for the results that a fast
// kernel spoils because it multiplies the zeros that it puts on padding, which an infinite or NaN factor makes NaN.
//
// A tap that lies on padding (or between the strides of a data direction) reads nothing, so nothing of it may reach a
// result. 0 * inf is the only way in which it could, and it always gives NaN: results that are NaN although some tap of
// theirs reads nothing are summed again from the taps that read something.
#pragma once

#include "src/ops/conv/conv_taps.h"

namespace tenor::conv {

/// One pass, every sum a chain over taps and channels in ascending order.
void plain_pass(const TapProblem& p, const Pass& pass);
/// The data direction under any stride, without passes.
void plain_data_backward(const ConvProblem& p);
/// The filter's gradient.
void plain_gradient(const ConvProblem& p, const Pass& pass);

/// Sums a pass's NaN results again whose taps do not all lie inside of the source. `everywhere`: of all results, since
/// the kernel may have multiplied zeros at taps that the pass does not have.
void mend_pass(const TapProblem& p, const Pass& pass, bool everywhere = false);
/// What a kernel of somebody else's wrote, whatever the direction.
void mend(const ConvProblem& p);
/// Sums NaN elements of a filter's gradient again whose tap lies on padding for some output, or all that are NaN.
void mend_gradient(const ConvProblem& p, const Pass& pass, bool everywhere = false);

}  // namespace tenor::conv
