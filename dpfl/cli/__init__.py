"""The program `dpfl` and what its commands share: flags, output, and answers of several calls.

It alone knows flags. Commands in `experiments` use it, nothing in the package does.
"""

FOR_ROOMS = (
    'command.command_line',
    'command.program',
    'flags.output_flags',
    'flags.participation_log',
    'flags.settings_flags',
    'main',
    'results.plan_answer',
    'results.plan_request',
    'results.report_files',
    'results.train_command',
    'results.verified_run',
)
