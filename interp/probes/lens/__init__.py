"""Reading the residual stream: through ``W_U``, by what each part writes to it, and by linear probes.

    logit_lens                what the model would answer if it stopped at a layer
    direct_logit_attribution  which heads (through which digits) and units write a digit's lead
    linear_probes             carries, digit sums and nines, on pairs of digits never seen

Each returns a frozen result with ``.sentence()``, ``.to_dataframe()`` and ``.figure()``.
"""

from interp.probes.lens.direct_logit_attribution import compute_direct_logit_attribution, direct_logit_attribution
from interp.probes.lens.jacobian_lens import jacobian_lens
from interp.probes.lens.linear_probes import LinearProbes, compute_linear_probes, linear_probes
from interp.probes.lens.logit_lens import compute_logit_lens, logit_lens
from interp.probes.lens.tuned_lens import tuned_lens
