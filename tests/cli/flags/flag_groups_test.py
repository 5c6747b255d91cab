"""Help shows the flags of a binary in groups, each once."""

import functools
import re

from dpfl.simulation.training import TrainConfig
from tests import forked_binaries

_help = functools.partial(forked_binaries.run, 'train')


def test_help_has_every_flag_once_in_its_group():
    shown = _help('--help').stdout
    names = re.findall(r'^  --(?:\[no\])?(\w+)', shown, re.M)
    assert len(names) == len(set(names))
    more = {'output_dir', 'overwrite', 'resume', 'dry_run', 'format'}
    assert {*TrainConfig().flat(), *more} == set(names)
    where = {name: shown.index(f'{name}:\n') for name in ('How updates are clipped and averaged',)}
    assert where['How updates are clipped and averaged'] < shown.index('--clip_norm:')
    # The directory of the run comes first; how it is executed, and the seed, come last.
    assert shown.index('--output_dir:') < shown.index('--task:') < shown.index('--shards:')
    assert '--helpfull also shows' in shown
