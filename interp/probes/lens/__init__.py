"""Reading the residual stream: through ``W_U``, by what each part writes to it, and by linear probes.

    interp.probes.lens.logit_lens(model)          what the model would answer if it stopped at a layer
    interp.probes.lens.logit_attribution(model)   which heads (through which digits) and units write a digit's lead
    interp.probes.lens.linear_probes(model)       carries, digit sums and nines, on pairs of digits never seen

Each returns a frozen result with ``.sentence()``, ``.to_dataframe()`` and ``.figure()``.
"""

from interp.probes.lens.backward_lens import backward_lens
from interp.probes.lens.direct_logit_attribution import LogitAttribution, compute_logit_attribution, logit_attribution
from interp.probes.lens.jacobian_lens import jacobian_lens
from interp.probes.lens.linear_probes import LinearProbes, compute_linear_probes, linear_probes
from interp.probes.lens.logit_lens import LogitLens, compute_logit_lens, logit_lens
from interp.probes.lens.tuned_lens import tuned_lens
