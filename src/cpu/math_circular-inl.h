// Vector functions of float and double, continued from math-inl.h: circular and hyperbolic functions, their inverses,
// powers.
#if defined(TENOR_CPU_MATH_CIRCULAR_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef TENOR_CPU_MATH_CIRCULAR_INL_H_
#undef TENOR_CPU_MATH_CIRCULAR_INL_H_
#else
#define TENOR_CPU_MATH_CIRCULAR_INL_H_
#endif

#include "src/cpu/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace tenor::cpu::HWY_NAMESPACE::math {

// ---- circular functions
// ----------------------------------------------------------------------------------------------------

/// sin and cos of x in double, to about 1e-11, for |x| < 10^6.
template <class D, class V>
HWY_INLINE void sin_cos_wide(D d, V x, V& sine, V& cosine) {
  const hn::RebindToSigned<D> di;
  const Rounded<D> n = round_small(d, x, 0.63661977236758134308);
  V r = hn::NegMulAdd(n.value, constant(d, 1.57079632673412561417), x);
  r = hn::NegMulAdd(n.value, constant(d, 6.07710050650619224932e-11), r);
  const V z = hn::Mul(r, r);
  const V s = hn::MulAdd(hn::Mul(z, r),
                         polynomial(d, z, -0.16666666639554194942, 0.0083333291436401110871, -0.00019839256575651339146,
                                    2.7175640861383182405e-6),
                         r);
  const V c = hn::MulAdd(hn::Mul(z, z),
                         polynomial(d, z, 0.041666666619201796445, -0.0013888883438339605817,
                                    0.000024799436394964999166, -2.7203302928725513975e-7),
                         hn::NegMulAdd(constant(d, 0.5), z, constant(d, 1)));
  const auto odd = hn::MaskFromVec(hn::BitCast(d, hn::Neg(hn::And(n.integer, hn::Set(di, 1)))));
  const auto sine_sign = hn::BitCast(d, hn::ShiftLeft<62>(hn::And(n.integer, hn::Set(di, 2))));
  const auto cosine_sign =
      hn::BitCast(d, hn::ShiftLeft<62>(hn::And(hn::Add(n.integer, hn::Set(di, 1)), hn::Set(di, 2))));
  sine = hn::Xor(hn::IfThenElse(odd, c, s), sine_sign);
  cosine = hn::Xor(hn::IfThenElse(odd, s, c), cosine_sign);
}
/// Arguments that sin_cos_wide does not reduce; NaN among them.
template <class D, class V>
HWY_INLINE auto beyond_reduction(D d, V x) {
  return hn::Not(hn::Lt(hn::Abs(x), constant(d, 1e6)));
}

template <class D, class V>
HWY_INLINE V sin(D d, V x) {
  const auto scalar = [](double v) { return std::sin(v); };
  if constexpr (kIsFloat32<D>) {
    const V v = via_double(
        d,
        [](auto w, auto a) HWY_ATTR {
          auto s = a, c = a;
          sin_cos_wide(w, a, s, c);
          return s;
        },
        x);
    return patch_lanes(d, hn::IfThenElse(hn::Eq(x, hn::Zero(d)), x, v), beyond_reduction(d, x), x, scalar);
  } else {
    return per_lane(d, x, scalar);
  }
}
template <class D, class V>
HWY_INLINE V cos(D d, V x) {
  const auto scalar = [](double v) { return std::cos(v); };
  if constexpr (kIsFloat32<D>) {
    const V v = via_double(
        d,
        [](auto w, auto a) HWY_ATTR {
          auto s = a, c = a;
          sin_cos_wide(w, a, s, c);
          return c;
        },
        x);
    return patch_lanes(d, v, beyond_reduction(d, x), x, scalar);
  } else {
    return per_lane(d, x, scalar);
  }
}
template <class D, class V>
HWY_INLINE V tan(D d, V x) {
  const auto scalar = [](double v) { return std::tan(v); };
  if constexpr (kIsFloat32<D>) {
    const V v = via_double(
        d,
        [](auto w, auto a) HWY_ATTR {
          auto s = a, c = a;
          sin_cos_wide(w, a, s, c);
          return hn::Div(s, c);
        },
        x);
    return patch_lanes(d, hn::IfThenElse(hn::Eq(x, hn::Zero(d)), x, v), beyond_reduction(d, x), x, scalar);
  } else {
    return per_lane(d, x, scalar);
  }
}

/// atan in double, to about 1e-12.
template <class D, class V>
HWY_INLINE V atan_wide(D d, V x) {
  const V t = hn::Abs(x), one = constant(d, 1);
  const auto large = hn::Gt(t, constant(d, 2.4142135623730950488)),
             middle = hn::Gt(t, constant(d, 0.41421356237309504880));
  const V numerator = hn::IfThenElse(large, hn::Neg(one), hn::IfThenElse(middle, hn::Sub(t, one), t));
  const V denominator = hn::IfThenElse(large, t, hn::IfThenElse(middle, hn::Add(t, one), one));
  const V r = hn::Div(numerator, denominator), z = hn::Mul(r, r);
  const V p = hn::MulAdd(
      hn::Mul(z, r),
      polynomial(d, z, -0.3333333333169448955, 0.19999999685192025241, -0.14285693572762202831, 0.11110449389416837208,
                 -0.090791295465718877436, 0.075684801649625136827, -0.058908288949140074514, 0.030891149290522255033),
      r);
  const V base = hn::IfThenElse(large, constant(d, 1.57079632679489661923),
                                hn::IfThenElseZero(middle, constant(d, 0.78539816339744830962)));
  const V both = hn::CopySignToAbs(hn::Add(base, p), x);
  return hn::IfThenElse(hn::IsNaN(x), x, both);
}
template <class D, class V>
HWY_INLINE V atan(D d, V x) {
  if constexpr (kIsFloat32<D>)
    return via_double(
        d, [](auto w, auto a) HWY_ATTR { return atan_wide(w, a); }, x);
  else
    return per_lane(d, x, [](double v) { return std::atan(v); });
}
template <class D, class V>
HWY_INLINE V asin(D d, V x) {
  if constexpr (kIsFloat32<D>) {
    return via_double(
        d,
        [](auto w, auto a) HWY_ATTR {
          const auto one = constant(w, 1);
          return atan_wide(w, hn::Div(a, hn::Sqrt(hn::Mul(hn::Sub(one, a), hn::Add(one, a)))));
        },
        x);
  } else {
    return per_lane(d, x, [](double v) { return std::asin(v); });
  }
}
template <class D, class V>
HWY_INLINE V acos(D d, V x) {
  if constexpr (kIsFloat32<D>) {
    return via_double(
        d,
        [](auto w, auto a) HWY_ATTR {
          const auto one = constant(w, 1);
          const auto half = atan_wide(w, hn::Sqrt(hn::Div(hn::Sub(one, a), hn::Add(one, a))));
          return hn::Add(half, half);
        },
        x);
  } else {
    return per_lane(d, x, [](double v) { return std::acos(v); });
  }
}

/// The angle of (x, y), in (-pi, pi].
template <class D, class V>
HWY_INLINE V atan2(D d, V y, V x) {
  const auto scalar = [](double a, double b) { return std::atan2(a, b); };
  if constexpr (kIsFloat32<D>) {
    const V v = via_double(
        d,
        [](auto w, auto a, auto b) HWY_ATTR {
          const auto right = atan_wide(w, hn::Div(a, b));
          const auto left = hn::Add(right, hn::CopySign(constant(w, 3.14159265358979323846), a));
          return hn::IfThenElse(hn::Lt(b, hn::Zero(w)), left, right);
        },
        y, x);
    const V zero = hn::Zero(d), inf = infinity(d);
    const auto nonzero = hn::And(hn::Ne(x, zero), hn::Ne(y, zero));
    const auto ordinary = hn::And(nonzero, hn::And(hn::Lt(hn::Abs(x), inf), hn::Lt(hn::Abs(y), inf)));
    if (HWY_LIKELY(hn::AllTrue(d, ordinary))) return v;
    return hn::IfThenElse(ordinary, v, per_lane(d, y, x, scalar));
  } else {
    return per_lane(d, y, x, scalar);
  }
}

// ---- hyperbolic functions
// --------------------------------------------------------------------------------------------------

template <class D, class V>
HWY_INLINE V sinh(D d, V x) {
  if constexpr (kIsFloat32<D>) {
    return via_double(
        d,
        [](auto w, auto a) HWY_ATTR {
          const auto e = expm1(w, hn::Abs(a)), half = constant(w, 0.5);
          const auto v = hn::Mul(half, hn::Add(e, hn::Div(e, hn::Add(e, constant(w, 1)))));
          const auto finite = hn::IfThenElse(hn::Gt(hn::Abs(a), constant(w, 100)), infinity(w), v);
          return hn::IfThenElse(hn::IsNaN(a), a, hn::CopySignToAbs(finite, a));
        },
        x);
  } else {
    return per_lane(d, x, [](double v) { return std::sinh(v); });
  }
}
template <class D, class V>
HWY_INLINE V cosh(D d, V x) {
  if constexpr (kIsFloat32<D>) {
    return via_double(
        d,
        [](auto w, auto a) HWY_ATTR {
          const auto e = exp(w, hn::Abs(a));
          return hn::Mul(constant(w, 0.5), hn::Add(e, hn::Div(constant(w, 1), e)));
        },
        x);
  } else {
    return per_lane(d, x, [](double v) { return std::cosh(v); });
  }
}
template <class D, class V>
HWY_INLINE V asinh(D d, V x) {
  if constexpr (kIsFloat32<D>) {
    return via_double(
        d,
        [](auto w, auto a) HWY_ATTR {
          const auto t = hn::Abs(a), z = hn::Mul(a, a), one = constant(w, 1);
          const auto v = log1p(w, hn::Add(t, hn::Div(z, hn::Add(one, hn::Sqrt(hn::Add(one, z))))));
          const auto finite = hn::IfThenElse(hn::Eq(t, infinity(w)), t, v);
          return hn::IfThenElse(hn::IsNaN(a), a, hn::CopySignToAbs(finite, a));
        },
        x);
  } else {
    return per_lane(d, x, [](double v) { return std::asinh(v); });
  }
}
template <class D, class V>
HWY_INLINE V acosh(D d, V x) {
  if constexpr (kIsFloat32<D>) {
    return via_double(
        d,
        [](auto w, auto a) HWY_ATTR {
          const auto t = hn::Sub(a, constant(w, 1));
          const auto v = log1p(w, hn::Add(t, hn::Sqrt(hn::Mul(t, hn::Add(t, constant(w, 2))))));
          return hn::IfThenElse(hn::Lt(t, hn::Zero(w)), quiet_nan(w), v);
        },
        x);
  } else {
    return per_lane(d, x, [](double v) { return std::acosh(v); });
  }
}
template <class D, class V>
HWY_INLINE V atanh(D d, V x) {
  if constexpr (kIsFloat32<D>) {
    return via_double(
        d,
        [](auto w, auto a) HWY_ATTR {
          const auto t = hn::Abs(a), one = constant(w, 1);
          const auto v = hn::Mul(constant(w, 0.5), log1p(w, hn::Div(hn::Add(t, t), hn::Sub(one, t))));
          return hn::IfThenElse(hn::IsNaN(a), a, hn::CopySignToAbs(v, a));
        },
        x);
  } else {
    return per_lane(d, x, [](double v) { return std::atanh(v); });
  }
}

// ---- powers
// ----------------------------------------------------------------------------------------------------------------

/// x^y as the C library's pow, with its special cases.
template <class D, class V>
HWY_INLINE V pow(D d, V x, V y) {
  const auto scalar = [](double a, double b) { return std::pow(a, b); };
  if constexpr (kIsFloat32<D>) {
    // log2 x to 2^-52 relative in double leaves y log2 x, below 2^8 in magnitude, 2^-43: float32 needs 2^-25.
    const V v = via_double(
        d,
        [](auto w, auto a, auto b) HWY_ATTR {
          const auto l = reduce_log(w, a);
          return exp2(w, hn::Mul(b, hn::MulAdd(hn::Add(l.t, l.rest), constant(w, 1.4426950408889634), l.exponent)));
        },
        x, y);
    const auto ordinary =
        hn::And(hn::And(hn::Gt(x, hn::Zero(d)), hn::Lt(x, infinity(d))), hn::Lt(hn::Abs(y), infinity(d)));
    if (HWY_LIKELY(hn::AllTrue(d, ordinary))) return v;
    return hn::IfThenElse(ordinary, v, per_lane(d, x, y, scalar));
  } else {
    return per_lane(d, x, y, scalar);
  }
}

}  // namespace tenor::cpu::HWY_NAMESPACE::math
HWY_AFTER_NAMESPACE();

#endif  // TENOR_CPU_MATH_CIRCULAR_INL_H_
