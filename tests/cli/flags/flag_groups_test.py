"""Help shows the flags of a binary in groups, each once."""

import functools
import re

from dpfl.cli.flags import flag_groups
from dpfl.simulation.training import TrainConfig
from dpfl.simulation.training.privacy_config import ClippingConfig, NoiseConfig
from dpfl.simulation.training.sampling_config import ParticipationConfig
from tests import forked_binaries

_help = functools.partial(forked_binaries.run, 'train')


def test_a_group_is_the_class_that_declares_the_settings():
    names = ['clip_norm', 'delta', 'rounds', 'seed', 'no_such']
    flag_groups.remember(TrainConfig(), [*TrainConfig().flat()])
    groups = flag_groups.grouped(names)
    assert groups[flag_groups.title(ClippingConfig)] == ['clip_norm']
    assert groups[flag_groups.title(NoiseConfig)] == ['delta']
    assert groups[flag_groups.title(ParticipationConfig)] == ['rounds']
    assert list(groups)[0] == 'Flags of this command' and list(groups)[-1].startswith('Settings')
    assert sorted(sum(groups.values(), [])) == sorted(names)


def test_a_title_is_one_sentence():
    assert flag_groups.title(ClippingConfig) == 'How updates are clipped and averaged'


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


def test_full_help_still_has_the_flags_of_libraries():
    assert '--verbosity' in _help('--helpfull').stdout
