"""The common part of all binaries: flags, one-line errors, and the exit status.

A bad flag, or a value that the library refuses, gives one line `error: --flag=value: what is
allowed` on standard error and exit status 2. A failure of the machine (a file, memory) gives one
line and exit status 1, Ctrl-C one line and 130, SIGTERM one line and 143. Anything else is a bug
and shows its traceback. Standard streams may be closed, broken or on a full disk.

Files that a binary writes are checked before its long work begins.
"""

import contextlib
import errno
import os
import pathlib
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from absl import app, flags, logging

from dpfl import errors
from dpfl._settings import Settings
from dpfl.accounting.records import archive
from dpfl.cli.command import flagfiles, program
from dpfl.runtime import signals, tff_import
from dpfl.simulation.training import round_config

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_REFUSED = 1
_BAD_USAGE = 2
# Flags that show the flags of the binary.
_HELP = ('help', 'helpshort')
_MORE_HELP = (
    '--flagfile=FILE reads flags from a file, one on a line. --helpfull also shows the flags of '
    'libraries.'
)
# Beginnings of flags of earlier versions, with their replacements.
_GONE = {'worker': 'is gone; --ray=local, auto or host:port trains on Ray'}
# Longest message. A value from the command line or a file may have any length.
_MOST_CHARACTERS = 2000
# Python's message if there is no memory for the stack of a thread, or there are too many threads.
_NO_THREAD = "can't start new thread"
_STREAMS = ('stdin', 'stdout', 'stderr')


class UsageError(Exception):
    """The user asked for something that cannot be done. The message is one line."""


@contextlib.contextmanager
def refusing_bad_values(**flags_of_arguments: str) -> Iterator[None]:
    """Context that turns a ValueError of the library into a `UsageError` that names the flag.

    Args:
      **flags_of_arguments: Name of the flag by the name of the argument, if the two differ.
    """
    try:
        yield
    except errors.ArgumentError as error:
        name = flags_of_arguments.get(error.name, error.name)
        message = f'--{error.named(name)}' if name in flags.FLAGS else str(error)
        raise UsageError(message) from error
    except ValueError as error:
        raise UsageError(' '.join(str(error).split())) from error


@contextlib.contextmanager
def naming(flag: str, value: object) -> Iterator[None]:
    """Context that turns an error into a `UsageError` that names a flag and its value.

    Args:
      flag: Name of the flag.
      value: Its value, such as a file that cannot be used.
    """
    try:
        yield
    except (OSError, ValueError, flags.Error) as error:
        reason = getattr(error, 'strerror', None) or error
        raise UsageError(f'--{flag}={value}: {" ".join(str(reason).split())}') from None


def required(settings: Settings, name: str) -> Any:
    """The value of a flag that must be given.

    Raises:
      UsageError: If it is not given, or empty.
    """
    with refusing_bad_values():
        return round_config.required(settings, name)


def refuse_others(purpose: str, *allowed: str) -> None:
    """Refuses the flags of the binary that do not apply to a purpose.

    Args:
      purpose: Name of the flag that gives the purpose.
      *allowed: Names of the other flags that apply.

    Raises:
      UsageError: If another flag is given.
    """
    for flag in flags.FLAGS.get_key_flags_for_module(sys.argv[0]):
        if flag.present and flag.name not in (purpose, *allowed):
            raise UsageError(f'--{flag.name}: cannot be combined with --{purpose}')


def run(
    main: Callable[[], None],
    *,
    threads_per_operation: int | None = None,
    operands_of: str | None = None,
    operands: Sequence[str] = (),
) -> None:
    """Parses the flags and calls `main`; does not return.

    Args:
      main: The work of the binary.
      operands_of: Flag with a list that also takes the arguments that are no flags, if it is given:
        `--flag one other` is then `--flag=one,other`.
      operands: Flags with lists that arguments stand for, in this order, if neither is given:
        `binary one other` is then `binary --a=one --b=other`.
      threads_per_operation: Threads of each TensorFlow operation, unless the environment sets
        them. Use 1 if shards run in parallel: `runtime.local_runtime` cannot set it once a model
        is traced.
    """
    if threads_per_operation is not None:
        os.environ.setdefault('TF_NUM_INTRAOP_THREADS', str(threads_per_operation))
    # Faster kernels. By default TensorFlow uses them only on the processors of one maker.
    os.environ.setdefault('TF_ENABLE_ONEDNN_OPTS', '1')
    # Logs of libraries are shown on request only (TF_CPP_MIN_LOG_LEVEL, --verbosity).
    os.environ.setdefault('TF_CPP_MIN_LOG_LEVEL', '3')

    def guarded(arguments):
        try:
            work(arguments)
        except Exception as error:
            interruption = signals.within(error)
            if interruption is None:
                raise
            _end_after(interruption)

    def work(arguments):
        try:
            if not flags.FLAGS['verbosity'].present:
                # Warnings of dpfl go through logging, those of libraries through absl.
                logging.set_verbosity(logging.WARNING)
                logging.get_absl_logger().setLevel('ERROR')
            if operands_of is not None and flags.FLAGS[operands_of].present:
                flags.FLAGS[operands_of].value += arguments[1:]
            elif len(arguments) == 1 + len(operands) and not any(
                flags.FLAGS[name].present for name in operands
            ):
                for name, argument in zip(operands, arguments[1:], strict=True):
                    flags.FLAGS[name].parse(argument)
            elif len(arguments) > 1:
                raise UsageError(f'{arguments[1]}: is not a flag')
            main()
            _flush_results()
        except UsageError as error:
            _fail(str(error), _BAD_USAGE)
        except (errors.RunError, errors.DataError) as error:
            _fail(str(error), _REFUSED)
        except ModuleNotFoundError as error:
            message = program.explain_missing(error, pathlib.Path(sys.argv[0]).stem)
            if message is None:
                raise
            _fail(message, _BAD_USAGE)
        except (KeyboardInterrupt, signals.Terminated) as error:
            _end_after(error)
        except MemoryError as error:
            _fail(' '.join(f'out of memory: {error}'.removesuffix(': ').split()), _REFUSED)
        except RuntimeError as error:
            if str(error) != _NO_THREAD:
                raise
            _fail(f'out of memory: {error}', _REFUSED)
        except BrokenPipeError:  # The reader of standard output has gone.
            _drop_results()
            sys.exit(_REFUSED)
        except OSError as error:
            _drop_results()
            is_bad_name = error.errno == errno.ENAMETOOLONG
            _fail(_what_failed(error), _BAD_USAGE if is_bad_name else _REFUSED)

    signals.begin_program()
    tff_import.refuse_default_context()
    _prepare_streams()
    app.call_after_init = _leave_out
    sys.unraisablehook = _unraisable
    app.run(guarded, flags_parser=_parse)


def _end_after(error: BaseException) -> NoReturn:
    """Ends the program after the exception of a signal."""
    # A second one ends the process while it cleans up, without a message.
    number = getattr(error, 'number', signal.SIGINT)
    signal.signal(number, signal.SIG_DFL)
    what = 'interrupted' if number == signal.SIGINT else 'terminated'
    _tell(f'{what}: {error}'.removesuffix(': '))
    with contextlib.suppress(OSError):
        _flush_results()
    os._exit(128 + number)  # Python would wait for a thread that is still compiling.


def _leave_out(callback: Callable[[], object]) -> None:
    """Takes the place of `absl.app.call_after_init`, and does not call back.

    Binaries import TensorFlow when absl has started already. A test module of TensorFlow would then
    be called back at once, and ask for devices before eager execution is on. From then on, while
    the main thread traces a function, TensorFlow believes to be in a graph of version 1, where `==`
    of tensors compares the Python objects. JAX also asks, for flags that it does not have here.
    """


def _what_failed(error: OSError) -> str:
    reason = error.strerror or str(error)
    if error.filename is None:
        return ' '.join(reason.split())
    return f'{errors.shown(error.filename, 80)}: {reason}'


def _unraisable(unraisable):
    """Hides a Ctrl-C that a finalizer swallows: the runtime raises it again."""
    if not issubclass(unraisable.exc_type, KeyboardInterrupt | SystemExit):
        sys.__unraisablehook__(unraisable)


def _parse(arguments):
    try:
        if _asks_for_help(arguments):
            if any(argument.lstrip('-') in _HELP for argument in arguments[1:]):
                _show_help(sys.modules['__main__'].__doc__ or '')
            expanded = [argument for argument, _ in flagfiles.expand(arguments[1:])]
            try:
                return app.parse_flags_with_usage([arguments[0], *expanded])
            except SystemExit:  # absl exits with 1 after the help that was asked for.
                sys.exit(0)
        adjusted, messages = flagfiles.adjust(arguments[1:])
        rest = flags.FLAGS([arguments[0], *adjusted])
        for message in messages:
            print(message, file=sys.stderr)
        return rest
    except flags.Error as error:
        _fail(_explain(error), _BAD_USAGE)


def _asks_for_help(arguments) -> bool:
    return any(argument.lstrip('-').startswith('help') for argument in arguments[1:])


def _show_help(text: str) -> NoReturn:
    """Prints the purpose of the binary and its flags in groups; absl would sort all of them."""
    from dpfl.cli.flags import settings_flags

    try:
        print(f'{text}\nflags:\n{settings_flags.help_text(sys.argv[0])}\n\n{_MORE_HELP}')
        _flush_results()
    except BrokenPipeError:  # The reader, such as head, has seen enough.
        _drop_results()
    sys.exit(0)


def _explain(error: flags.Error) -> str:
    """Rewrites a message of absl as `--flag=value: what is allowed`."""
    message = ' '.join(str(error).split())
    flag = message.removeprefix('flag ').partition(': ')[0]
    name = flag.removeprefix('--').partition('=')[0]
    if isinstance(error, flags.UnrecognizedFlagError):
        for beginning, instead in _GONE.items():
            if error.flagname.startswith(beginning):
                return f'--{error.flagname}: {instead}'
        # absl would also propose its own flags, which help does not show.
        own = [option.name for option in flags.FLAGS.get_key_flags_for_module(sys.argv[0])]
        near = errors.nearest(error.flagname, own)
        proposal = f'; the nearest is --{near}' if near else '; --help lists them'
        return f"Unknown command line flag '{error.flagname}'{proposal}"
    if isinstance(error, flags.IllegalFlagValueError) and name in flags.FLAGS:
        parser = flags.FLAGS[name].parser
        if isinstance(parser, flags.EnumParser):
            value = flag.partition('=')[2]
            return f'{flag}: {errors.one_of(value, parser.enum_values)}'
        if isinstance(parser, flags.BooleanParser):
            return f'--{name}={flag.partition("=")[2]}: must be true or false'
        return f'{flag}: must be {parser.syntactic_help}' if parser.syntactic_help else message
    return message


def _fail(message: str, status: int) -> NoReturn:
    _tell(message)
    sys.exit(status)


def _tell(message: str) -> None:
    """Writes the closing line of the program."""
    print(f'error: {errors.shown(message, _MOST_CHARACTERS)}', file=sys.stderr, flush=True)
    signals.told()


def check_writable(output: str | None, plot: str | None, data: str | None = None) -> None:
    """Checks the files of --output, --plot and --data.

    Raises:
      UsageError: If a directory does not exist, a file is one or cannot be written, or is within
        the directory of a run, which would no longer verify, or matplotlib cannot write this kind
        of plot.
    """
    for name, path in (('output', output), ('plot', plot), ('data', data)):
        if path is None:
            continue
        if not pathlib.Path(path).parent.is_dir():
            raise UsageError(f'--{name}={path}: must be in a directory that exists')
        if pathlib.Path(path).is_dir():
            raise UsageError(f'--{name}={path}: must not be a directory')
        if not os.access(path if os.path.exists(path) else pathlib.Path(path).parent, os.W_OK):
            raise UsageError(f'--{name}={path}: must be writable')
        for folder in pathlib.Path(path).resolve().parents:
            if os.path.exists(folder / archive.LEDGER) or all(
                os.path.exists(folder / file) for file in (archive.PLAN, archive.SUMS)
            ):
                raise UsageError(f'--{name}={path}: must not be within the run {folder}')
    if plot is None:
        return
    from matplotlib.figure import Figure  # Takes a second to import.

    kinds = Figure().canvas.get_supported_filetypes()
    if pathlib.Path(plot).suffix[1:] not in kinds:
        raise UsageError(f'--plot={plot}: must end in one of {", ".join(sorted(kinds))}')


def save_plot(figure: 'Figure', path: str) -> None:
    """Writes the figure to the file of --plot.

    Raises:
      UsageError: If the file cannot be written.
    """
    try:
        figure.savefig(path, dpi=120)
    except (OSError, ValueError) as error:
        raise UsageError(f'--plot={path}: {error}') from None


class _Stream:
    """A text stream of this process.

    For messages, text that cannot be written is dropped, and the work goes on. For results, which
    have a name, an error is raised that names them.
    """

    def __init__(self, stream: Any, name: str | None = None):
        self._stream, self._name = stream, name

    def __getattr__(self, name):
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        with self._handled():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with self._handled():
            self._stream.flush()

    @contextlib.contextmanager
    def _handled(self):
        try:
            yield
        except OSError as error:
            if self._name is not None:
                raise OSError(error.errno, error.strerror, self._name) from error


def _prepare_streams() -> None:
    """Prepares the standard streams of this process. Call it once.

    A closed stream is replaced by the null device. Otherwise the next file that is opened would
    take its place, and the output of a library would end up in that file. Messages on standard
    error never end the work, even if their reader is gone, for example a closed terminal.
    """
    for descriptor, name in enumerate(_STREAMS):
        _open_stream(descriptor, name)
    results: Any = _Stream(sys.stdout, 'standard output')
    messages: Any = _Stream(sys.stderr)
    sys.stdout, sys.stderr = results, messages
    # Not `setStream`, which writes to the previous stream.
    logging.get_absl_handler().python_handler.stream = sys.stderr


def _flush_results() -> None:
    """Flushes standard output; raises OSError if that fails."""
    sys.stdout.flush()


def _drop_results() -> None:
    """Discards standard output from now on, so that the interpreter can flush it when it ends."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


def _open_stream(descriptor: int, name: str) -> None:
    try:
        os.fstat(descriptor)
    except OSError:
        null = os.open(os.devnull, os.O_RDWR)
        if null != descriptor:
            os.dup2(null, descriptor)
            os.close(null)
    if getattr(sys, name) is None:
        mode = 'r' if name == 'stdin' else 'w'
        setattr(sys, name, open(descriptor, mode, closefd=False))
