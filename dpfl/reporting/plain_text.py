"""Tables in plain text, as commands print them."""


def table(values: dict) -> str:
    """A table with a name and its value in each line."""
    width = max(map(len, values))
    return '\n'.join(
        f'{name:<{width}}  {value:.4g}' if isinstance(value, float) else f'{name:<{width}}  {value}'
        for name, value in values.items()
    )


def columns(rows: list[dict]) -> str:
    """A table of rows that have the same names; numbers have four digits."""
    names = list(rows[0])
    cells = [names] + [
        [f'{row[name]:.4g}' if isinstance(row[name], float) else str(row[name]) for name in names]
        for row in rows
    ]
    widths = [max(len(line[i]) for line in cells) for i in range(len(names))]
    return '\n'.join(
        '  '.join(cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        for line in cells
    )
